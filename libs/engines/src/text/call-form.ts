/** A part of a call's form: a text, what a regular expression matches, or one of several. */
export type FormPart =
  | string
  | { readonly pattern: string }
  | { readonly anyOf: readonly (readonly FormPart[])[] };

/** How a model family writes calls of tools: `open`, calls with `between` between them, and `close`. */
export interface CallForm {
  readonly family: "hermes" | "llama" | "mistral" | "mistral-args" | "granite";
  /** No text before the calls has it. */
  readonly mark: string;
  /** Those of its texts that a vocabulary may have as control tokens. */
  readonly tokens: readonly string[];
  readonly open: readonly FormPart[];
  /** A call is `before`, the function's name, `middle`, the arguments and `after`. */
  readonly before: string;
  readonly middle: readonly FormPart[];
  readonly after: readonly FormPart[];
  readonly between: string;
  readonly close: string;
  /** An answer that begins like a call is one, without the mark. */
  readonly isBare?: boolean | undefined;
  /** The template refuses ids of calls that are not nine letters and digits. */
  readonly hasShortIds?: boolean | undefined;
}

const ARGUMENTS = '", "arguments": ';
const OBJECT = '{"name": "';
const CALL_ID: FormPart = { pattern: "[a-zA-Z0-9]{9}" };

/** The form that engines give to the rest of the system; see ToolUse. */
export const HERMES: CallForm = {
  family: "hermes",
  mark: "<tool_call>",
  tokens: ["<tool_call>", "</tool_call>"],
  open: [],
  before: `<tool_call>\n${OBJECT}`,
  middle: [ARGUMENTS],
  after: ["}\n</tool_call>"],
  between: "\n",
  close: "",
};

const LLAMA: CallForm = {
  family: "llama",
  mark: "<|python_tag|>",
  tokens: ["<|python_tag|>"],
  open: [{ anyOf: [[], ["<|python_tag|>"]] }],
  before: OBJECT,
  middle: ['", "parameters": '],
  after: ["}"],
  between: "; ",
  close: "",
  isBare: true,
};

const MISTRAL: CallForm = {
  family: "mistral",
  mark: "[TOOL_CALLS]",
  tokens: ["[TOOL_CALLS]"],
  open: ["[TOOL_CALLS]", { anyOf: [["["], [" ["]] }],
  before: OBJECT,
  middle: [ARGUMENTS],
  after: [{ anyOf: [["}"], [', "id": "', CALL_ID, '"}']] }],
  between: ", ",
  close: "]",
  hasShortIds: true,
};

const MISTRAL_ARGS: CallForm = {
  family: "mistral-args",
  mark: "[TOOL_CALLS]",
  tokens: ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"],
  open: [],
  before: "[TOOL_CALLS]",
  middle: ["[ARGS]"],
  after: [],
  between: "",
  close: "",
};

const MISTRAL_IDS: CallForm = {
  ...MISTRAL_ARGS,
  middle: [{ anyOf: [["[ARGS]"], ["[CALL_ID]", CALL_ID, "[ARGS]"]] }],
  hasShortIds: true,
};

const GRANITE: CallForm = {
  family: "granite",
  mark: "<|tool_call|>",
  tokens: ["<|tool_call|>"],
  open: ["<|tool_call|>["],
  before: OBJECT,
  middle: [ARGUMENTS],
  after: ["}"],
  between: ", ",
  close: "]",
};

/** The first of which a template has all of `has` and none of `lacks` is its form. */
const FAMILIES: readonly {
  readonly form: CallForm;
  readonly has: readonly string[];
  readonly lacks?: readonly string[];
}[] = [
  { form: MISTRAL_IDS, has: ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"] },
  { form: MISTRAL_ARGS, has: ["[TOOL_CALLS]", "[ARGS]"] },
  { form: MISTRAL, has: ["[TOOL_CALLS]"] },
  { form: GRANITE, has: ["<|tool_call|>", "<|start_of_role|>"] },
  {
    form: LLAMA,
    has: ["<|start_header_id|>", '"parameters": ', "ipython"],
    lacks: ["<function=", "<tool_call>"],
  },
  { form: HERMES, has: ["<tool_call>"], lacks: ["<function=", "<arg_key>"] },
];

/** The form in which a chat template that presents tools asks for calls; undefined for all others. */
export function callFormOf(template: string): CallForm | undefined {
  if (!/\btools\b/.test(template)) return undefined;
  return FAMILIES.find(
    ({ has, lacks = [] }) =>
      has.every((text) => template.includes(text)) &&
      !lacks.some((text) => template.includes(text)),
  )?.form;
}
