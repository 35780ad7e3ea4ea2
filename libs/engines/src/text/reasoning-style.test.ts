// holds: api-reasoning

import { expect, it } from "vitest";
import { reasoningStyleOf } from "./reasoning-style.ts";

// The ends of published templates, from their GGUF files.
const chatml =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + message['content'] }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const strips = "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}";
const qwen3 = `${strips}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}`;
const r1 = `{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}`;

it.each([
  ["", undefined],
  [chatml, undefined],
  [qwen3, "tagged"],
  [strips, "tagged"],
  [r1, "open"],
])("reasoning style: template %#", (template, style) => {
  expect(reasoningStyleOf(template)).toBe(style);
});
