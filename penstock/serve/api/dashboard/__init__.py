"""The dashboard at `/`: one page that fetches nothing but its own live data, and the feed of that data.

`feed.py` looks at the engine on a thread of its own while somebody watches; `lanes.py`, `blocks.py`, `figures.py` and `limit.py` say what
is shown; `events.py` sends it; `html.py` puts the page together from the files in `page/`.
"""
