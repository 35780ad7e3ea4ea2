import type { UpstreamDialect } from "@heddle/contracts/models/upstream-spec";

/** Parameters beyond OpenAI's contract, by their names in this API. */
export type Extension =
  | "top_k"
  | "min_p"
  | "repetition_penalty"
  | "min_tokens"
  | "ignore_eos"
  | "deterministic"
  | "thinking_token_budget";
/** Parameters of OpenAI's contract that some servers accept and ignore. */
export type Ignorable = "n" | "seed" | "logit_bias" | "presence_penalty" | "prompt";

export interface Dialect {
  /** The server's names; what is absent is refused. */
  readonly extensions: Partial<Readonly<Record<Extension, string>>>;
  readonly ignores: ReadonlySet<Ignorable>;
  /** Sent where nothing is asked: the server's own defaults would change the answer. */
  readonly neutral: Readonly<Record<string, number>>;
  /** Whether 1 is the default of temperature and top_p; some models refuse any value. */
  readonly hasNeutralDefaults: boolean;
  /** The limit of a chat's output tokens. */
  readonly maxTokens: "max_tokens" | "max_completion_tokens";
  /** Whether its completions take a `suffix`; others ignore or refuse it. */
  readonly fills: boolean;
  /** The fewest alternatives with which it scores an echoed prompt; undefined where it cannot. */
  readonly echoes: number | undefined;
  /** Whether an effort of reasoning is a member, or goes to the chat template; else it is refused. */
  readonly effort: "member" | "template" | undefined;
  /** Its parameter of a salt for cached prefixes; absent where it has none. */
  readonly salt: string | undefined;
  /** Whether it knows the role `developer`. */
  readonly hasDeveloper: boolean;
  /** What a chunk's usage counts: all that was generated so far, all of the answer, or its choice. */
  readonly usage: "so far" | "answer" | "choice";
}

const SAME_NAMES = {
  top_k: "top_k",
  min_p: "min_p",
  repetition_penalty: "repetition_penalty",
  min_tokens: "min_tokens",
  ignore_eos: "ignore_eos",
} as const;

const OPENAI: Dialect = {
  extensions: {},
  ignores: new Set(),
  neutral: {},
  hasNeutralDefaults: true,
  maxTokens: "max_completion_tokens",
  fills: true,
  echoes: 0,
  effort: "member",
  salt: undefined,
  hasDeveloper: true,
  usage: "answer",
};

const VLLM: Dialect = {
  ...OPENAI,
  extensions: { ...SAME_NAMES, thinking_token_budget: "thinking_token_budget" },
  // Its defaults are those of the model's generation_config.json.
  neutral: { top_k: -1, min_p: 0, repetition_penalty: 1 },
  hasNeutralDefaults: false,
  maxTokens: "max_tokens",
  fills: false,
  effort: "template",
  salt: "cache_salt",
  hasDeveloper: false,
  usage: "so far",
};

export const DIALECTS: Readonly<Record<UpstreamDialect, Dialect>> = {
  openai: OPENAI,
  vllm: VLLM,
  // It ignores a budget of reasoning unless it was started with --enable-strict-thinking.
  sglang: { ...VLLM, extensions: SAME_NAMES, ignores: new Set(["seed"]), echoes: 1 },
  "llama-server": {
    ...VLLM,
    extensions: {
      top_k: "top_k",
      min_p: "min_p",
      repetition_penalty: "repeat_penalty",
      ignore_eos: "ignore_eos",
      thinking_token_budget: "thinking_budget_tokens",
    },
    echoes: undefined,
    salt: undefined,
    // Its penalties look at the last 64 tokens where nothing is said.
    neutral: { top_k: 0, min_p: 0, repeat_penalty: 1, repeat_last_n: 131_072 },
    usage: "choice",
  },
  tgi: {
    ...OPENAI,
    ignores: new Set(["n", "logit_bias", "presence_penalty", "prompt"]),
    hasNeutralDefaults: false,
    maxTokens: "max_tokens",
    fills: true,
    echoes: undefined,
    effort: undefined,
    hasDeveloper: false,
  },
  heddle: {
    ...OPENAI,
    extensions: {
      ...SAME_NAMES,
      deterministic: "deterministic",
      thinking_token_budget: "thinking_token_budget",
    },
  },
};
