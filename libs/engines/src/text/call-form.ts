/** A part of a call's form: a text, what a regular expression matches, or one of several. */
export type FormPart =
  | string
  | { readonly pattern: string }
  | { readonly anyOf: readonly (readonly FormPart[])[] };

/** How a model family writes calls of tools: `open`, calls with `between` between them, and `close`. */
export interface CallForm {
  readonly family:
    | "hermes"
    | "llama"
    | "mistral"
    | "mistral-args"
    | "granite"
    | "deepseek"
    | "qwen-coder"
    | "harmony";
  /** No text before the calls has it. */
  readonly mark: string;
  /** The texts of this form that a vocabulary may have as control tokens. */
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
  /** Each argument is an element of its own: texts as they are, all else as JSON. */
  readonly isTagged?: boolean | undefined;
  /** What a template that writes calls has before a name, where that is not `before`. */
  readonly shown?: string | undefined;
  /** The model writes this form even if its template presents no tools. */
  readonly isNative?: boolean | undefined;
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

/** As DeepSeek V3 and R1 write calls. */
const DEEPSEEK: CallForm = {
  family: "deepseek",
  mark: "<｜tool▁calls▁begin｜>",
  tokens: [
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
  ],
  open: ["<｜tool▁calls▁begin｜>"],
  before: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
  middle: ["\n```json\n"],
  after: ["\n```<｜tool▁call▁end｜>"],
  between: "\n",
  close: "<｜tool▁calls▁end｜>",
  isNative: true,
};

/** As DeepSeek V3.1 does. */
const DEEPSEEK_ARGS: CallForm = {
  ...DEEPSEEK,
  before: "<｜tool▁call▁begin｜>",
  middle: ["<｜tool▁sep｜>"],
  after: ["<｜tool▁call▁end｜>"],
  between: "",
};

const QWEN_CODER: CallForm = {
  family: "qwen-coder",
  mark: "<tool_call>",
  tokens: ["<tool_call>", "</tool_call>"],
  open: [],
  before: "<tool_call>\n<function=",
  middle: [">\n"],
  after: ["</function>\n</tool_call>"],
  between: "\n",
  close: "",
  isTagged: true,
};

/** As gpt-oss writes: messages in channels, one of which may be a call. */
const HARMONY: CallForm = {
  family: "harmony",
  mark: "<|channel|>",
  tokens: ["<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>"],
  open: [],
  before: "<|channel|>commentary to=functions.",
  middle: [" <|constrain|>json<|message|>"],
  after: [],
  between: "",
  close: "",
  shown: "to=functions.",
  isNative: true,
};

/** What calls of these functions begin with: no text before has it. */
export function callMarks(
  { family, mark, before, shown = mark, isBare }: CallForm,
  names: readonly string[],
): readonly string[] {
  if (family === "harmony") return [shown];
  return [mark, ...(isBare ? names.map((name) => `${before}${name}"`) : [])];
}

/** The first of which a template has all of `has` and none of `lacks` is its form. */
const FAMILIES: readonly {
  readonly form: CallForm;
  readonly has: readonly string[];
  readonly lacks?: readonly string[];
}[] = [
  { form: HARMONY, has: ["<|channel|>", "<|message|>", "analysis"] },
  { form: DEEPSEEK, has: ["<｜tool▁calls▁begin｜>", "```json"] },
  { form: DEEPSEEK_ARGS, has: ["<｜tool▁calls▁begin｜>"] },
  { form: QWEN_CODER, has: ["<tool_call>", "<function=", "<parameter="] },
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

/**
 * The form in which a chat template asks for calls. It is undefined for one that presents no tools,
 * unless its model has a form all the same.
 */
export function callFormOf(template: string): CallForm | undefined {
  const form = FAMILIES.find(
    ({ has, lacks = [] }) =>
      has.every((text) => template.includes(text)) &&
      !lacks.some((text) => template.includes(text)),
  )?.form;
  return form?.isNative || /\btools\b/.test(template) ? form : undefined;
}
