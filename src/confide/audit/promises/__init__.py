"""The claims, a module a room: each entry says how one promise of the room is run and on which neighbours."""
