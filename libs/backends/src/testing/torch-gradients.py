"""The programs of libs/training written anew in PyTorch, in float64, from their descriptions.

Reads a case as JSON from standard input: the kind of program, its sizes, and parameters and data by
name, each with its shape. Writes the loss and each parameter's gradient as JSON.
"""

import json
import math
import sys

import torch


def dense(p, x, name):
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def supervised(p, d, case):
    x = d["features"]
    last = len(case["hidden"])
    for layer in range(last):
        x = torch.relu(dense(p, x, f"dense.{layer}"))
    x = dense(p, x, f"dense.{last}")
    if case["task"] == "regression":
        return 0.5 * torch.nn.functional.mse_loss(x, d["target"])
    return torch.nn.functional.cross_entropy(x, d["target"])


def ppo(p, d, case):
    """The loss of CleanRL's ppo.py and ppo_continuous_action.py."""

    def network(name):
        x = torch.tanh(dense(p, d["observation"], f"{name}.0"))
        return dense(p, torch.tanh(dense(p, x, f"{name}.1")), f"{name}.2")

    head, value = network("actor"), network("critic").view(-1)
    if case["continuous"]:
        policy = torch.distributions.Normal(head, torch.exp(p["actor.log_deviation"]).expand_as(head))
        log_probability = policy.log_prob(d["action"]).sum(1)
        entropy = policy.entropy().sum(1)
    else:
        policy = torch.distributions.Categorical(logits=head)
        log_probability = policy.log_prob(d["action"])
        entropy = policy.entropy()
    ratio = (log_probability - d["log_probability"]).exp()
    advantage = d["advantage"]
    if case["norm_adv"]:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clip = case["clip_coef"]
    policy_loss = torch.max(-advantage * ratio, -advantage * torch.clamp(ratio, 1 - clip, 1 + clip)).mean()
    plain = (value - d["return"]) ** 2
    if case["clip_vloss"]:
        near = d["value"] + torch.clamp(value - d["value"], -clip, clip)
        plain = torch.max(plain, (near - d["return"]) ** 2)
    return policy_loss - case["ent_coef"] * entropy.mean() + case["vf_coef"] * 0.5 * plain.mean()


def rms_norm(x, gain, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * gain


def rotary(x, theta):
    """Of neighbouring pairs, as complex numbers: [batch, time, heads, width]."""
    time, width = x.shape[1], x.shape[3]
    rates = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(time, dtype=torch.float64), rates)
    turn = torch.polar(torch.ones_like(angles), angles)[None, :, None, :]
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], width // 2, 2))
    return torch.view_as_real(pairs * turn).flatten(-2)


def language_model(p, d, case):
    heads, kv_heads, width = case["heads"], case["kv_heads"], case["hidden_size"] // case["heads"]
    batch, time = d["tokens"].shape
    x = p["token_embd.weight"][d["tokens"]]
    for layer in range(case["layers"]):
        w = {k.split(".", 2)[2]: v for k, v in p.items() if k.startswith(f"blk.{layer}.")}
        h = rms_norm(x, w["attn_norm.weight"], case["norm_epsilon"])
        q = rotary((h @ w["attn_q.weight"]).view(batch, time, heads, width), case["rope_theta"])
        k = rotary((h @ w["attn_k.weight"]).view(batch, time, kv_heads, width), case["rope_theta"])
        v = (h @ w["attn_v.weight"]).view(batch, time, kv_heads, width)
        k, v = (t.repeat_interleave(heads // kv_heads, dim=2).transpose(1, 2) for t in (k, v))
        scores = q.transpose(1, 2) @ k.transpose(2, 3) / math.sqrt(width)
        mask = torch.triu(torch.full((time, time), -math.inf, dtype=torch.float64), diagonal=1)
        mixed = (torch.softmax(scores + mask, -1) @ v).transpose(1, 2).reshape(batch, time, -1)
        x = x + mixed @ w["attn_output.weight"]
        h = rms_norm(x, w["ffn_norm.weight"], case["norm_epsilon"])
        gate = torch.nn.functional.silu(h @ w["ffn_gate.weight"])
        x = x + (gate * (h @ w["ffn_up.weight"])) @ w["ffn_down.weight"]
    logits = rms_norm(x, p["output_norm.weight"], case["norm_epsilon"]) @ p["output.weight"]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), d["targets"].flatten())


PROGRAMS = {"supervised": supervised, "ppo": ppo, "language_model": language_model}


def tensor(given):
    kind = torch.int64 if given["type"] == "i32" else torch.float64
    return torch.tensor(given["values"], dtype=kind).reshape(given["shape"])


def run(case):
    parameters = {k: tensor(v).requires_grad_() for k, v in case["parameters"].items()}
    data = {k: tensor(v) for k, v in case["data"].items()}
    loss = PROGRAMS[case["kind"]](parameters, data, case["sizes"])
    loss.backward()
    gradients = {k: v.grad.flatten().tolist() for k, v in parameters.items()}
    return {"loss": loss.item(), "gradients": gradients}


print(json.dumps([run(case) for case in json.load(sys.stdin)]))
