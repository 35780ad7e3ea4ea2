import type { ChatTemplateOrigin } from "../../engine.ts";

/** Where a model's file may come from: the form of a source, and what to know of it, by its scheme. */
export const WEIGHT_SOURCES = {
  hf: {
    form: "hf://owner/repo/path[@revision]",
    meaning: "The Hugging Face hub. `HF_ENDPOINT` names a mirror, `HF_TOKEN` a token.",
  },
  https: { form: "https://host/path", meaning: "A web server that workers allow." },
  file: {
    form: "file:///path/model.gguf",
    meaning: "A regular file of the worker, used where it lies.",
  },
  oci: {
    form: "oci://registry/repo:tag or @sha256:...",
    meaning: "An OCI registry, anonymous: the layer named as the file, or the only one.",
  },
  npm: {
    form: "npm://package@version/path",
    meaning: "An npm package, by `npm pack` with its registry and credentials.",
  },
  pypi: { form: "pypi://package==version/path", meaning: "A PyPI wheel, by `pip download`." },
  artifact: {
    form: "artifact://job/attempt/rank/name",
    meaning: "What a job has left, from its worker through a master; needs the `sha256`.",
  },
  s3: {
    form: "s3://bucket/key",
    meaning: "An object of a bucket that workers allow, read with their key.",
  },
  builtin: {
    form: "builtin://tiny[?seed=1&context=8192]",
    meaning: "Random weights; `builtin://tiny-adapter[?seed=1]` is a LoRA adapter for them.",
  },
} as const satisfies Record<string, { readonly form: string; readonly meaning: string }>;

/** Which template each origin means. */
export const CHAT_TEMPLATE_MEANINGS: Readonly<Record<ChatTemplateOrigin, string>> = {
  option: "The engine option `chat_template`.",
  file: "The one in the file.",
  chatml: "None in the file; control tokens `<|im_start|>` and `<|im_end|>`, as of Qwen, SmolLM.",
  llama3:
    "None in the file; control tokens `<|start_header_id|>`, `<|end_header_id|>`, `<|eot_id|>`.",
  gemma: "None in the file; `<start_of_turn>` and `<end_of_turn>`; system text begins a user turn.",
  plain: "None in the file and no known family: `role: text` a message, then `assistant:`.",
};
