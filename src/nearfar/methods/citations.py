"""The papers to cite for each method, in BibTeX, for model cards."""

from nearfar.registry import find_entry

PAPERS = {
    "liao": """@misc{liao2021sentence,
  title  = {Sentence Embeddings using Supervised Contrastive Learning},
  author = {Liao, Danqi},
  year   = {2021},
  eprint = {2106.04791},
  archivePrefix = {arXiv}
}""",
    "simcse": """@inproceedings{gao2021simcse,
  title     = {{SimCSE}: Simple Contrastive Learning of Sentence Embeddings},
  author    = {Gao, Tianyu and Yao, Xingcheng and Chen, Danqi},
  booktitle = {Proceedings of EMNLP},
  year      = {2021}
}""",
    "kim": """@inproceedings{kim2021self,
  title     = {Self-Guided Contrastive Learning for {BERT} Sentence Representations},
  author    = {Kim, Taeuk and Yoo, Kang Min and Lee, Sang-goo},
  booktitle = {Proceedings of ACL-IJCNLP},
  year      = {2021}
}""",
    "gunel": """@inproceedings{gunel2021supervised,
  title     = {Supervised Contrastive Learning for Pre-trained Language Model Fine-tuning},
  author    = {Gunel, Beliz and Du, Jingfei and Conneau, Alexis and Stoyanov, Veselin},
  booktitle = {Proceedings of ICLR},
  year      = {2021}
}""",
    "regression": """@inproceedings{reimers2019sentence,
  title     = {Sentence-{BERT}: Sentence Embeddings using Siamese {BERT}-Networks},
  author    = {Reimers, Nils and Gurevych, Iryna},
  booktitle = {Proceedings of EMNLP-IJCNLP},
  year      = {2019}
}""",
    "distill": """@inproceedings{liu2023rankcse,
  title     = {{RankCSE}: Unsupervised Sentence Representations Learning via Learning to Rank},
  author    = {Liu, Jiduan and Liu, Jiahao and Wang, Qifan and Wang, Jingang and Wu, Wei and Xian, Yunsen and
               Zhao, Dongyan and Chen, Kai and Yan, Rui},
  booktitle = {Proceedings of ACL},
  year      = {2023}
}""",
    "vectors": """@inproceedings{reimers2020making,
  title     = {Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation},
  author    = {Reimers, Nils and Gurevych, Iryna},
  booktitle = {Proceedings of EMNLP},
  year      = {2020}
}""",
    "khosla": """@inproceedings{khosla2020supervised,
  title     = {Supervised Contrastive Learning},
  author    = {Khosla, Prannay and Teterwak, Piotr and Wang, Chen and Sarna, Aaron and Tian, Yonglong and Isola, Phillip
               and Maschinot, Aaron and Liu, Ce and Krishnan, Dilip},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2020}
}""",
    "burges": """@inproceedings{burges2005learning,
  title     = {Learning to Rank using Gradient Descent},
  author    = {Burges, Chris and Shaked, Tal and Renshaw, Erin and Lazier, Ari and Deeds, Matt and Hamilton, Nicole and
               Hullender, Greg},
  booktitle = {Proceedings of ICML},
  year      = {2005}
}""",
}
"""Package of :mod:`nearfar.methods`, or another name that :data:`_ALSO` uses -> a paper."""
_ALSO = {
    "sbert": ("regression", "liao"),
    "scl-finetune": ("gunel",),
    "distill": ("vectors", "distill"),
    "nli-order": ("khosla", "burges"),
}
"""Methods whose papers are not, or not only, that of their package."""


def citations(method: str) -> list[str]:
    """BibTeX entries of the papers behind a method; empty if none is known."""
    entry = find_entry(method)
    place = entry.config if entry is not None and isinstance(entry.config, str) else ""
    package = place.partition(":")[0].removeprefix("nearfar.methods.")
    return [PAPERS[name] for name in _ALSO.get(method, (package,)) if name in PAPERS]
