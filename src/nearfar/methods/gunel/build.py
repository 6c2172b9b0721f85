"""supcon-text: from labelled texts and settings to the method."""

from collections import Counter

from nearfar.data.labelled import label_summary
from nearfar.data.rows import TextData, load_labelled
from nearfar.methods.build import BuildContext, BuiltMethod, require_data, text_facts
from nearfar.methods.gunel import SupconTextConfig
from nearfar.methods.gunel.supcon_text import supcon_text


def read_rows(config: SupconTextConfig) -> TextData:
    """Read labelled texts."""
    return load_labelled(
        require_data(config), text_column=config.text_column, label_column=config.label_column, limit=config.limit
    )


def build_supcon_text(config: SupconTextConfig, context: BuildContext, rows: TextData) -> BuiltMethod:
    """Build supcon-text, with balanced batches."""
    batches = context.batches(config, rows, balanced=True)
    method = supcon_text(config, context.encoder.embed, batches, label_names=rows.label_names)
    counts = Counter(rows.targets or ())
    labels = label_summary({name: counts[number] for number, name in enumerate(rows.label_names)})
    return BuiltMethod(method, [*text_facts(rows), *labels])
