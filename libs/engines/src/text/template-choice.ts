import type { ChatTemplateOrigin } from "@heddle/contracts/engine";

/** https://github.com/openai/openai-python/blob/v0.28.1/chatml.md, without a system prompt of its own. */
export const CHATML_TEMPLATE =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/** https://www.llama.com/docs/model-cards-and-prompt-formats/meta-llama-3/ */
const LLAMA3_TEMPLATE =
  "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

/**
 * https://ai.google.dev/gemma/docs/core/prompt-structure: a system message has no turn of its own
 * and begins the next user turn.
 */
const GEMMA_TEMPLATE =
  "{{ bos_token }}{% set ns = namespace(system='') %}{% for message in messages %}" +
  "{% if message['role'] == 'system' %}{% set ns.system = ns.system + message['content'] | trim + '\\n\\n' %}" +
  "{% else %}{% if message['role'] == 'assistant' %}" +
  "{% if ns.system != '' %}{{ '<start_of_turn>user\\n' + ns.system | trim + '<end_of_turn>\\n' }}{% endif %}" +
  "{{ '<start_of_turn>model\\n' + message['content'] | trim + '<end_of_turn>\\n' }}" +
  "{% else %}{{ '<start_of_turn>user\\n' + ns.system + message['content'] | trim + '<end_of_turn>\\n' }}{% endif %}" +
  "{% set ns.system = '' %}{% endif %}{% endfor %}" +
  "{% if ns.system != '' %}{{ '<start_of_turn>user\\n' + ns.system | trim + '<end_of_turn>\\n' }}{% endif %}" +
  "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

/** For vocabularies of no known family, mostly of base models: text without control tokens. */
const PLAIN_TEMPLATE =
  "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}";

/** A family is known by its control tokens: without them its template would be ordinary text. */
const FAMILIES = [
  { origin: "chatml", controls: ["<|im_start|>", "<|im_end|>"], source: CHATML_TEMPLATE },
  {
    origin: "llama3",
    controls: ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    source: LLAMA3_TEMPLATE,
  },
  { origin: "gemma", controls: ["<start_of_turn>", "<end_of_turn>"], source: GEMMA_TEMPLATE },
] as const;

/** A jinja template and where it is from. */
interface TemplateChoice {
  readonly source: string;
  readonly origin: ChatTemplateOrigin;
}

/**
 * The option's template, else the file's, else that of the family whose control tokens the
 * vocabulary has, else plain text. A blank template counts as none.
 */
export function chooseTemplate(
  given: { readonly option: string | undefined; readonly file: string },
  controls: ReadonlySet<string>,
): TemplateChoice {
  const { option = "", file } = given;
  if (option.trim() !== "") return { source: option, origin: "option" };
  if (file.trim() !== "") return { source: file, origin: "file" };
  const family = FAMILIES.find((known) => known.controls.every((text) => controls.has(text)));
  return family ?? { source: PLAIN_TEMPLATE, origin: "plain" };
}
