"""Label privatisers: each label is made private by itself, and any learner may follow.

One file a mechanism, all frozen objects with an `event` and a `release`; `estimator` has their scikit-learn
shells. The public names are those of `confide.training`.
"""
