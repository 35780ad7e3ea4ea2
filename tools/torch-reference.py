"""Writes the reference values that the tests of training formulas compare with.

Run it with PyTorch installed (`pip install torch`, the CPU build): `python tools/torch-reference.py`,
then `npm run format`. The optimizers, losses and schedules are PyTorch's own; the programs around them
are written from their descriptions. Everything is computed in float64, except the encodings, which are
defined in float32. Inputs come from `pattern`, which libs/training/src/testing/pattern.ts repeats.
"""

import json
import math
import pathlib

import torch
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = 256


def pattern(salt, *shape):
    """Multiples of 1/1024 in [-1, 1), exact in float32."""
    count = math.prod(shape)
    numbers = [((i * 7919 + salt * 104729) % 2048) / 1024 - 1 for i in range(count)]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def rounded(value):
    """To 10 digits, which keeps the files small."""
    if isinstance(value, torch.Tensor):
        value = value.detach().flatten().tolist()
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return float(f"{value:.10g}") if isinstance(value, float) else value


# Optimizers: a tensor of 2 x 3 and one of 4 take steps with given gradients and changing rates.

RATES = [0.1, 0.2, 0.05, 0.125, 0.1]
ADAM = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weightDecay": 0}
OPTIMIZERS = [
    ("sgd", {"kind": "sgd", "momentum": 0, "nesterov": False}, None),
    ("momentum", {"kind": "sgd", "momentum": 0.9, "nesterov": False}, None),
    ("Nesterov momentum", {"kind": "sgd", "momentum": 0.8, "nesterov": True}, None),
    ("Adam", {"kind": "adam", **ADAM}, None),
    ("Adam with other coefficients", {"kind": "adam", **ADAM, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}, None),
    ("AdamW", {"kind": "adamw", **ADAM, "weightDecay": 0.1}, None),
    ("sgd, clipped", {"kind": "sgd", "momentum": 0, "nesterov": False}, 1.5),
    ("AdamW, clipped", {"kind": "adamw", **ADAM, "epsilon": 1e-2, "weightDecay": 0.01}, 0.5),
]


def torch_optimizer(parameters, given):
    if given["kind"] == "sgd":
        return torch.optim.SGD(parameters, lr=1, momentum=given["momentum"], nesterov=given["nesterov"])
    make = torch.optim.AdamW if given["kind"] == "adamw" else torch.optim.Adam
    betas = (given["beta1"], given["beta2"])
    return make(parameters, lr=1, betas=betas, eps=given["epsilon"], weight_decay=given["weightDecay"])


def optimizer_case(name, given, max_norm):
    parameters = [pattern(1, 2, 3).requires_grad_(), pattern(2, 4).requires_grad_()]
    optimizer = torch_optimizer(parameters, given)
    after, norms = [], []
    for step, rate in enumerate(RATES):
        for i, parameter in enumerate(parameters):
            parameter.grad = pattern(10 + 2 * step + i, *parameter.shape)
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, max_norm or math.inf).item())
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        after.append(torch.cat([each.detach().flatten() for each in parameters]).tolist())
    case = {"name": name, "optimizer": given, "rates": RATES, "gradientNorms": norms, "after": after}
    return case if max_norm is None else {**case, "maxGradientNorm": max_norm}


def outer_case(rate, momentum):
    """DiLoCo: the mean of how far three workers moved is the gradient of the outer SGD."""
    shared = pattern(3, 6).requires_grad_()
    outer = torch.optim.SGD([shared], lr=rate, momentum=momentum, nesterov=momentum > 0)
    after = []
    for round_ in range(4):
        local = [shared.detach() + pattern(40 + 3 * round_ + worker, 6) / 4 for worker in range(3)]
        shared.grad = torch.stack([shared.detach() - each for each in local]).mean(0)
        outer.step()
        after.append(shared.detach().tolist())
    return {"learningRate": rate, "momentum": momentum, "after": after}


# Programs: losses, metrics and gradients.


def dense(p, x, name):
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def dense_shapes(prefix, sizes):
    shapes = {}
    for layer, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        shapes[f"{prefix}.{layer}.weight"] = (inputs, outputs)
        shapes[f"{prefix}.{layer}.bias"] = (outputs,)
    return shapes


def supervised_shapes(sizes):
    return dense_shapes("dense", [sizes["features"], *sizes["hidden"], sizes["outputs"]])


def supervised_data(sizes, batch, _):
    numbers = sizes["task"] == "regression"
    target = pattern(91, batch, sizes["outputs"]) if numbers else classes(92, sizes["outputs"], batch)
    return {"features": 2 * pattern(90, batch, sizes["features"]), "target": target}


def supervised(p, d, sizes):
    x = d["features"]
    last = len(sizes["hidden"])
    for layer in range(last):
        x = torch.relu(dense(p, x, f"dense.{layer}"))
    x = dense(p, x, f"dense.{last}")
    if sizes["task"] == "regression":
        return 0.5 * functional.mse_loss(x, d["target"]), {}
    return functional.cross_entropy(x, d["target"]), {}


def classes(salt, count, *shape):
    return ((pattern(salt, *shape) + 1) / 2 * count).long()


def ppo_shapes(sizes):
    hidden = [sizes["observations"], sizes["hidden"], sizes["hidden"]]
    shapes = {**dense_shapes("actor", [*hidden, sizes["actions"]]), **dense_shapes("critic", [*hidden, 1])}
    return {**shapes, "actor.log_deviation": (sizes["actions"],)} if sizes["continuous"] else shapes


def ppo_policy(p, d, sizes):
    def network(name):
        x = torch.tanh(dense(p, d["observation"], f"{name}.0"))
        return dense(p, torch.tanh(dense(p, x, f"{name}.1")), f"{name}.2")

    head, value = network("actor"), network("critic").view(-1)
    if sizes["continuous"]:
        deviation = torch.exp(p["actor.log_deviation"]).expand_as(head)
        policy = torch.distributions.Normal(head, deviation)
        return policy.log_prob(d["action"]).sum(1), policy.entropy().sum(1), value
    policy = torch.distributions.Categorical(logits=head)
    return policy.log_prob(d["action"]), policy.entropy(), value


def ppo_data(sizes, batch, p):
    actions = sizes["actions"]
    data = {
        "observation": 2 * pattern(80, batch, sizes["observations"]),
        "action": pattern(81, batch, actions) if sizes["continuous"] else classes(82, actions, batch),
        "advantage": 2 * pattern(83, batch) + 0.5,
        "return": pattern(84, batch),
    }
    with torch.no_grad():
        now, _, value = ppo_policy(p, data, sizes)
        # Near what the policy says now, so that some ratios and values are clipped and some are not.
        data["log_probability"] = torch.round((now + 0.5 * pattern(85, batch)) * 1024) / 1024
        data["value"] = torch.round((value + 0.5 * pattern(86, batch)) * 1024) / 1024
    return data


def ppo(p, d, sizes):
    """The loss of CleanRL's ppo.py and ppo_continuous_action.py."""
    log_probability, entropy, value = ppo_policy(p, d, sizes)
    log_ratio = log_probability - d["log_probability"]
    ratio = log_ratio.exp()
    clip = sizes["clip_coef"]
    advantage = d["advantage"]
    if sizes["norm_adv"]:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = torch.max(-advantage * ratio, -advantage * torch.clamp(ratio, 1 - clip, 1 + clip)).mean()
    plain = (value - d["return"]) ** 2
    if sizes["clip_vloss"]:
        near = d["value"] + torch.clamp(value - d["value"], -clip, clip)
        plain = torch.max(plain, (near - d["return"]) ** 2)
    value_loss = 0.5 * plain.mean()
    loss = policy_loss - sizes["ent_coef"] * entropy.mean() + value_loss * sizes["vf_coef"]
    return loss, {
        "policy_loss": policy_loss.item(),
        "value_loss": value_loss.item(),
        "entropy": entropy.mean().item(),
        "approximate_kl": ((ratio - 1) - log_ratio).mean().item(),
        "clip_fraction": ((ratio - 1).abs() > clip).double().mean().item(),
    }


def language_model_shapes(sizes):
    hidden, wide = sizes["hidden_size"], sizes["intermediate_size"]
    narrow = hidden // sizes["heads"] * sizes["kv_heads"]
    shapes = {"token_embd.weight": (sizes["vocab_size"], hidden)}
    for layer in range(sizes["layers"]):
        block = {
            "attn_norm": (hidden,),
            "attn_q": (hidden, hidden),
            "attn_k": (hidden, narrow),
            "attn_v": (hidden, narrow),
            "attn_output": (hidden, hidden),
            "ffn_norm": (hidden,),
            "ffn_gate": (hidden, wide),
            "ffn_up": (hidden, wide),
            "ffn_down": (wide, hidden),
        }
        shapes.update({f"blk.{layer}.{name}.weight": shape for name, shape in block.items()})
    return {**shapes, "output_norm.weight": (hidden,), "output.weight": (hidden, sizes["vocab_size"])}


def language_model_data(sizes, batch, _):
    size = (batch, sizes["context_length"])
    return {"tokens": classes(70, sizes["vocab_size"], *size), "targets": classes(71, sizes["vocab_size"], *size)}


def rotary(x, theta):
    """Of neighbouring pairs, as complex numbers: [batch, heads, time, width]."""
    time, width = x.shape[2], x.shape[3]
    rates = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(time, dtype=torch.float64), rates)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], width // 2, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def language_model(p, d, sizes):
    heads, kv_heads, hidden = sizes["heads"], sizes["kv_heads"], sizes["hidden_size"]
    batch, time = d["tokens"].shape

    def norm(x, name):
        return functional.rms_norm(x, (hidden,), p[f"{name}.weight"], sizes["norm_epsilon"])

    def split(x, count):
        return x.view(batch, time, count, hidden // heads).transpose(1, 2)

    x = p["token_embd.weight"][d["tokens"]]
    for layer in range(sizes["layers"]):
        w = {k.split(".")[2]: v for k, v in p.items() if k.startswith(f"blk.{layer}.")}
        h = norm(x, f"blk.{layer}.attn_norm")
        q = rotary(split(h @ w["attn_q"], heads), sizes["rope_theta"])
        k = rotary(split(h @ w["attn_k"], kv_heads), sizes["rope_theta"])
        v = split(h @ w["attn_v"], kv_heads)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + mixed.transpose(1, 2).reshape(batch, time, -1) @ w["attn_output"]
        h = norm(x, f"blk.{layer}.ffn_norm")
        x = x + (functional.silu(h @ w["ffn_gate"]) * (h @ w["ffn_up"])) @ w["ffn_down"]
    logits = norm(x, "output_norm") @ p["output.weight"]
    return functional.cross_entropy(logits.flatten(0, 1), d["targets"].flatten()), {}


POLICY = {"observations": 3, "actions": 2, "hidden": 4}
PPO = {"clip_coef": 0.2, "ent_coef": 0.03, "vf_coef": 0.7}
NETWORK = {"features": 3, "outputs": 2, "hidden": [4]}
LANGUAGE_MODEL = {
    **{"vocab_size": 7, "context_length": 5, "hidden_size": 8, "layers": 2, "heads": 4, "kv_heads": 2},
    **{"intermediate_size": 6, "rope_theta": 100, "norm_epsilon": 1e-5},
}
PROGRAMS = [
    ("supervised", {**NETWORK, "task": "regression"}, 6),
    ("supervised", {**NETWORK, "task": "classification"}, 6),
    ("ppo", {**POLICY, **PPO, "continuous": False, "norm_adv": True, "clip_vloss": True}, 12),
    ("ppo", {**POLICY, **PPO, "continuous": False, "norm_adv": False, "clip_vloss": False}, 12),
    ("ppo", {**POLICY, **PPO, "continuous": True, "norm_adv": True, "clip_vloss": True}, 12),
    ("ppo", {**POLICY, **PPO, "continuous": True, "norm_adv": False, "clip_vloss": False}, 12),
    ("language_model", LANGUAGE_MODEL, 2),
]
KINDS = {
    "supervised": (supervised_shapes, supervised_data, supervised),
    "ppo": (ppo_shapes, ppo_data, ppo),
    "language_model": (language_model_shapes, language_model_data, language_model),
}


def program_case(kind, sizes, batch):
    shapes_of, data_of, loss_of = KINDS[kind]
    p = {
        name: (pattern(100 + i, *shape) / 2 + ("norm" in name)).requires_grad_()
        for i, (name, shape) in enumerate(sorted(shapes_of(sizes).items()))
    }
    data = data_of(sizes, batch, p)
    loss, metrics = loss_of(p, data, sizes)
    loss.backward()
    if kind == "ppo":
        assert 0 < metrics["clip_fraction"] < 1
    return {
        **{"kind": kind, "sizes": sizes, "batch": batch, "loss": loss.item(), "metrics": metrics},
        "data": {name: each.flatten().tolist() for name, each in data.items()},
        "gradients": {name: each.grad.flatten().tolist() for name, each in p.items()},
    }


def advantage_case():
    """CleanRL's loop; a truncated episode adds the value of what it saw last, as Stable-Baselines3 does."""
    steps, environments, gamma, decay = 6, 3, 0.97, 0.9
    rewards, values = pattern(60, steps, environments), pattern(61, steps, environments)
    dones, cut = torch.zeros(steps, environments), torch.zeros(steps, environments, dtype=torch.float64)
    dones[1, 0] = dones[3, 1] = dones[5, 2] = 1
    cut[3, 1] = 0.75
    last = pattern(62, environments)
    advantages, follows = torch.zeros_like(rewards), 0
    for t in reversed(range(steps)):
        following = last if t == steps - 1 else values[t + 1]
        delta = rewards[t] + gamma * cut[t] + gamma * following * (1 - dones[t]) - values[t]
        follows = delta + gamma * decay * (1 - dones[t]) * follows
        advantages[t] = follows
    return {
        **{"steps": steps, "environments": environments, "gamma": gamma, "lambda": decay},
        **{"dones": dones.flatten().tolist(), "cutValues": cut.flatten().tolist()},
        **{"advantages": advantages.flatten().tolist(), "returns": (advantages + values).flatten().tolist()},
    }


def scheduled(rate, steps, make):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
    schedule = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def schedules():
    """Weave: linear warm-up, then a cosine to a tenth. PPO: linear to zero."""
    rate, warmup, total, iterations = 0.3, 4, 13, 5

    def weave(optimizer):
        rise = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warmup, 1, warmup - 1)
        fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - warmup, rate / 10)
        return torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], [warmup])

    def annealed(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 - done / iterations)

    return {
        "weave": {"rate": rate, "warmup": warmup, "total": total, "rates": scheduled(rate, total, weave)},
        "ppo": {"rate": rate, "rates": scheduled(rate, iterations, annealed)},
    }


# Encodings with error feedback, in float32: what a round's encoding loses is added to the next part.


def parts():
    """The second block is small, so that its scale is another; no two magnitudes are the same."""
    rounds = [(pattern(50 + round_, 2 * BLOCK) + 1 / 4096).float() for round_ in range(3)]
    for each in rounds:
        each[BLOCK:] /= 128
    return rounds


def to_int8(values):
    blocks = values.reshape(-1, BLOCK)
    scales = blocks.abs().amax(1) / 127
    integers = torch.round(blocks * (1 / scales)[:, None])
    return scales, integers.flatten(), (integers * scales[:, None]).flatten()


def with_feedback(encode):
    residual = torch.zeros(2 * BLOCK)
    rounds = []
    for part in parts():
        residual = residual + part
        told, decoded = encode(residual)
        residual = residual - decoded
        rounds.append(told)
    return rounds


def bf16(values):
    halves = values.to(torch.bfloat16)
    return halves.view(torch.int16).int().bitwise_and(0xFFFF).tolist(), halves.float()


def int8(values):
    scales, integers, decoded = to_int8(values)
    return {"scales": scales.tolist(), "integers": integers.int().tolist()}, decoded


def topk(values):
    assert values.abs().unique().numel() == values.numel()
    indices = values.abs().topk(8).indices.sort().values
    decoded = torch.zeros_like(values)
    decoded[indices] = values[indices]
    return {"indices": indices.tolist(), "values": values[indices].tolist()}, decoded


def pull_case():
    """A shard's parameters move by SGD; workers have what was published, and are sent int8 changes."""
    parameters = pattern(55, BLOCK).float()
    published, rounds = parameters.clone(), []
    for part in parts():
        parameters = parameters - part[:BLOCK] * 0.5
        _, integers, decoded = to_int8(parameters - published)
        published = published + decoded
        rounds.append(integers.int().tolist())
    return {"rate": 0.5, "rounds": rounds}


def write(path, value):
    text = json.dumps(rounded(value), indent=1)
    (ROOT / path).write_text(f"{text}\n")


cases = [optimizer_case(*each) for each in OPTIMIZERS]
write(
    "libs/training/src/testing/torch-reference.json",
    {
        "optimizers": cases,
        "outer": [outer_case(0.7, 0.9), outer_case(1, 0)],
        "programs": [program_case(*each) for each in PROGRAMS],
        "advantages": advantage_case(),
        "schedules": schedules(),
    },
)
write("apps/parameter-server/src/testing/torch-reference.json", {"optimizers": cases, "pull": pull_case()})
write(
    "libs/parameters/src/testing/torch-reference.json",
    {"bf16": with_feedback(bf16), "int8": with_feedback(int8), "topk": with_feedback(topk)},
)
