"""Which environment variables a worker's record has."""

from wattslice.train.variables import steering_variables


def test_variables_that_steer_are_recorded_and_secrets_are_not() -> None:
    found = steering_variables(
        {
            "OMP_NUM_THREADS": "2",
            "GOMP_SPINCOUNT": "0",
            "KMP_BLOCKTIME": "1",
            "MKL_NUM_THREADS": "2",
            "CUDA_VISIBLE_DEVICES": "MIG-1",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "TORCH_HOME": "/data",
            "NVIDIA_API_KEY": "hidden",
            "TORCH_PROXY": "http://user:hidden@host/",
            "HOME": "/home/x",
            "HF_TOKEN": "hidden",
        }
    )
    assert list(found) == sorted(found)
    assert found["OMP_NUM_THREADS"] == "2"
    assert found["CUDA_VISIBLE_DEVICES"] == "MIG-1"
    assert found["NVIDIA_API_KEY"] == found["TORCH_PROXY"] == "(withheld)"
    assert "hidden" not in str(found)
    assert not {"HOME", "HF_TOKEN"} & set(found)
