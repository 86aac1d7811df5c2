"""Where rows come from; a folder a kind."""
