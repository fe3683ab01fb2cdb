"""The OpenAPI document against what the service does, by generated requests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("service_fake", Path(__file__).with_name("fake.py"))
_fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fake)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("schemathesis") is None, reason="no schemathesis: pip install it"
    ),
]
CASES = 500


@pytest.mark.parametrize("key", ["alice-key", "nobody"])
def test_generated_requests_meet_the_document(key):
    import schemathesis
    from hypothesis import HealthCheck, given, settings
    from schemathesis import GenerationMode

    service, app = _fake.made()
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    schema.config.generation.update(with_security_parameters=False)  # the key is the test's own
    statuses = set()
    for operation in (result.ok() for result in schema.get_all_operations()):
        # Nothing can be wrong with a request that takes nothing.
        takes = operation.method == "post"
        for mode in GenerationMode if takes else [GenerationMode.POSITIVE]:

            @settings(
                max_examples=CASES // 2 if takes else 5,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def run(case):
                for name in service.spent:
                    service.spent[name] *= 0
                response = case.call(headers={"Authorization": f"Bearer {key}"})
                statuses.add(response.status_code)
                assert response.status_code < 500
                case.validate_response(response)

            run()
    assert statuses >= ({200, 400, 422} if key == "alice-key" else {200, 401})
