"""Vega-Lite as one script for a page that must not ask a network for it."""

from functools import cache

from replay.errors import InputError

_ENDS = ("</script", "<!--")


@cache
def charts_script() -> str:
    """Vega, Vega-Lite and vega-embed as `vegaEmbed`, some 900 KB; seconds the first time."""
    import vl_convert

    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if any(end in script.lower() for end in _ENDS):
        raise InputError("vl-convert-python", "", "must give a script that fits into a page")
    return script
