"""The trans operator of FOLNet: a softmax over one index of a relation, times another relation."""
