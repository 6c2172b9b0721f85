"""nearfar's objectives as losses for sentence-transformers' ``SentenceTransformerTrainer``.

Each loss is a module with the interface of that library, ``loss(sentence_features, labels)``, and has the value and the
gradient of the nearfar method of the same objective. Importing this package imports torch and sentence-transformers;
``import nearfar`` does not.

=========================  ====================================================  =====================================
loss                       columns of the data set                               nearfar method
=========================  ====================================================  =====================================
:class:`InfoNceLoss`       anchor, positive, any number of negatives; no label   info-nce, simcse-sup
:class:`PremiseSclLoss`    premise, hypothesis, label 0, 1 or 2                  scl
:class:`SelfGuidedLoss`    sentence, or sentence and back-translation; no label  sg, sg-opt1, sg-opt2, sg-opt, bt+sg-opt
:class:`SupconLoss`        text, integer label                                   supcon-text
=========================  ====================================================  =====================================

The names of the columns do not matter, their order does; a label column is called ``label``, ``labels``, ``score`` or
``scores``. Two texts are equal if they have the same token ids, without the prompts of their columns.

With several processes, each process contrasts the texts of its own batch.
"""

from nearfar.sentence_transformers._losses import InfoNceLoss, PremiseBatches, PremiseSclLoss, SupconLoss
from nearfar.sentence_transformers._self_guided import SelfGuidedLoss

__all__ = ["InfoNceLoss", "PremiseBatches", "PremiseSclLoss", "SelfGuidedLoss", "SupconLoss"]
