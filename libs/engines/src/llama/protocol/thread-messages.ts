import type {
  DeterministicMode,
  EngineFailure,
  EngineInfo,
  KvDtype,
} from "@heddle/contracts/engine";
import type { GpuSplit, StageDtype } from "@heddle/contracts/models/model-division";
import type { GrammarProgram } from "../../grammar/program.ts";
import type { TokenTrie } from "../../grammar/token-trie.ts";
import type { RowLogprobs } from "../sampling/logprobs.ts";
import type { SamplerOptions } from "../sampling/sampler.ts";

/** How the engine thread is started; every value is settled but those the model decides. */
export interface ThreadStart {
  readonly modelPath: string;
  readonly device: string;
  readonly gpuLayers: number;
  /** Over several devices; absent for one. */
  readonly split?: GpuSplit | undefined;
  readonly threads: number;
  /**
   * The stages of the model: more than one where others compute before this one, over STAGES_FD.
   */
  readonly stages?: number | undefined;
  /** Blocks of the stages before this one. */
  readonly earlierBlocks?: number | undefined;
  /** Calls under way at once; as many as stages if absent. */
  readonly callsAtOnce?: number | undefined;
  /** The type of what the stages send; `f32` if absent. */
  readonly stageDtype?: StageDtype | undefined;
  /** The type of the KV cache; `f16` if absent. */
  readonly kvDtype?: KvDtype | undefined;
  /** Absent means as many as the memory has room for, at most a default. */
  readonly maxSequences?: number | undefined;
  readonly prefillBudgetTokens: number;
  /** Absent means the default. */
  readonly draftTokens?: number | undefined;
  /** Absent means `request`; the other modes need a cache with slots. */
  readonly deterministic?: DeterministicMode | undefined;
  /** Whether a sequence that fills its context continues without a part of it. */
  readonly contextShift?: boolean | undefined;
  /** Absent means the model's own, at most a default cap. */
  readonly contextTokens?: number | undefined;
  /** Absent means as many as the default and the memory allow. */
  readonly kvTokens?: number | undefined;
  /** One int32 that the other side changes and notifies when it has posted something. */
  readonly wake: SharedArrayBuffer;
  /** The memory of the StepRing through which plain steps come. */
  readonly steps: SharedArrayBuffer;
}

/** A bound on the reasoning of a choice. */
export interface ReasoningLimit {
  readonly tokens: number;
  /** The prompt has opened the reasoning. */
  readonly isOpen: boolean;
  /** The tokens that end it. */
  readonly closing: Int32Array;
}

/** A LoRA adapter on this machine that a request is computed with. */
export interface ThreadAdapter {
  readonly path: string;
  /** What its change of the weights is multiplied by. */
  readonly scale: number;
}

/** The tokens of a choice until now, and whether its limit has chosen one of them. */
export interface SentTokens {
  readonly tokens: Int32Array;
  readonly isCut: boolean;
}

/** One request for the engine thread; its choices have the handles firstHandle + i. */
export interface ThreadSubmit {
  readonly kind: "submit";
  readonly firstHandle: number;
  readonly choices: number;
  readonly prompt: Int32Array;
  /** Each choice of a continued answer until now; undefined for a finished choice. */
  readonly sent?: readonly (SentTokens | undefined)[] | undefined;
  readonly maxTokens: number;
  /** The seed is that of choice 0. */
  readonly sampling: SamplerOptions;
  /** Tokens of each choice before which none that ends it is drawn. */
  readonly minTokens: number;
  /** -1 for no log-probabilities. */
  readonly topLogprobs: number;
  /** Whether the prompt's tokens get log-probabilities too. */
  readonly scoresPrompt: boolean;
  /** Absent where reasoning has no bound of its own. */
  readonly reasoning?: ReasoningLimit | undefined;
  /** The id of a grammar that the text must match; NO_GRAMMAR for none. */
  readonly grammar: number;
  /** Whether it is computed in shapes that do not depend on other requests. */
  readonly isDeterministic: boolean;
  /** Absent for the model as it is. */
  readonly adapter?: ThreadAdapter | undefined;
  readonly cacheSalt: string;
  readonly fairKey: string;
  readonly priority: number;
}

/** One embedding request for the engine thread; its inputs have the handles firstHandle + i. */
export interface ThreadEmbed {
  readonly kind: "embed";
  readonly firstHandle: number;
  readonly prompts: readonly Int32Array[];
  readonly fairKey: string;
  readonly priority: number;
}

/** Ends choices whose further tokens no request needs; unknown handles are ignored. */
interface ThreadEnd {
  readonly kind: "end";
  readonly handles: readonly number[];
}

/** Comes before the first request that names the grammar. */
export interface ThreadGrammar {
  readonly kind: "grammar";
  readonly id: number;
  readonly program: GrammarProgram;
  /** With the first grammar. */
  readonly trie?: TokenTrie | undefined;
}

/** No further request names the grammar; those that do continue. */
interface ThreadForget {
  readonly kind: "forgetGrammar";
  readonly id: number;
}

export type ThreadCommand = ThreadSubmit | ThreadEmbed | ThreadEnd | ThreadGrammar | ThreadForget;

/** In ThreadSubmit.grammar: the text is free. */
export const NO_GRAMMAR = -1;

/** Where a text may be cut so that the tokens of its pieces are those of the whole. */
export interface TextCuts {
  /** Before the space that begins a word. */
  readonly atSpaces: boolean;
  /** Before a symbol or a line's end that follows a letter. */
  readonly atSymbols: boolean;
  /** Anywhere, though the tokens differ there, in a text that has no good place for thousands of characters. */
  readonly anywhere: boolean;
  /** Before a character that no token has: a bit for each code point that some token has. */
  readonly known: Uint8Array | undefined;
  /** Between the groups of three, from its end, in which a run of digits is read. */
  readonly inDigits: boolean;
  /** Tokens of the space that the library puts before each text; 0 where it puts none. */
  readonly spaceTokens: number;
}

/** How a query and a document are one prompt: by the template, or else by tokens around them. */
export interface PairForm {
  /** With `{query}` and `{document}`; empty where the file has none. */
  readonly template: string;
  readonly begin: readonly number[];
  readonly between: readonly number[];
  readonly end: readonly number[];
}

/** The tokens before what precedes a gap, before what follows it, and before what fills it. */
export interface FillTokens {
  readonly prefix: number;
  readonly suffix: number;
  readonly middle: number;
}

/** What the model's file says about its tokens; the arrays are in shared memory. */
export interface VocabularyTable {
  /** The bytes of all tokens, special ones as they are written, one after another. */
  readonly bytes: Uint8Array;
  /** Token t is bytes[offsets[t], offsets[t + 1]). */
  readonly offsets: Uint32Array;
  /** The sum of what holds of the token: ENDS_GENERATION, IS_CONTROL, IS_PARSED, IS_MARK. */
  readonly flags: Uint8Array;
  /** 1 for each byte of text that some token spells however it is tokenized, 0 for what may be dropped. */
  readonly kept: Uint8Array;
  readonly cuts: TextCuts;
  readonly pair: PairForm;
  /** Absent where the model fills no gaps. */
  readonly fill: FillTokens | undefined;
  readonly bos: string;
  readonly eos: string;
  /** The native vocabulary, for tokenizing in another thread of this process. */
  readonly address: bigint;
}

/** In VocabularyTable.flags: the token ends the generation. */
export const ENDS_GENERATION = 1;
/** In VocabularyTable.flags: the token has no text. */
export const IS_CONTROL = 2;
/** In VocabularyTable.flags: the token is read from text only where special tokens are parsed. */
export const IS_PARSED = 4;
/** In VocabularyTable.flags: a control token that has text: it marks reasoning or calls of tools. */
export const IS_MARK = 8;

/** What a model can be asked for. */
export interface ModelAbilities {
  /** Text; false for encoders. */
  readonly generates: boolean;
  /** Vectors; false for models whose one output is a rank. */
  readonly embeds: boolean;
  /** Scores of pairs. */
  readonly ranks: boolean;
  /** Why it refuses deterministic requests, and what to do; undefined where it answers them. */
  readonly unrepeatable?: string | undefined;
}

export interface ThreadReady {
  readonly kind: "ready";
  readonly info: EngineInfo;
  readonly abilities: ModelAbilities;
  readonly vocabulary: VocabularyTable;
  readonly chatTemplate: string;
  readonly kvTokens: number;
  readonly maxSequences: number;
  readonly load: ThreadLoad;
}

/** A failure that ends the thread. */
interface ThreadFatal {
  readonly kind: "fatal";
  readonly error: EngineFailure;
}

/** The thread's counters; tokens since it started. */
export interface ThreadLoad {
  readonly running: number;
  readonly waiting: number;
  readonly kvUsedTokens: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  /** Tokens that were predicted and computed, and those of them that were sampled. */
  readonly draftTokens: number;
  readonly acceptedTokens: number;
}

/** A request's first choice got a slot. */
export interface ThreadStarted {
  readonly firstHandle: number;
  readonly cachedTokens: number;
  readonly queuedMs: number;
}

/** Log-probabilities of the prompt's next tokens; of the first token there is none. */
export interface ThreadScores {
  readonly firstHandle: number;
  readonly rows: readonly RowLogprobs[];
}

/** In ThreadStep.ends: why a choice ended with its token. */
export const GOES_ON = 0;
/** The token ends the generation and has no text. */
export const ENDED_STOP = 1;
/** The token is the last that the limits allow. */
export const ENDED_LENGTH = 2;
/** In ThreadStep.ends: the model's logits for the next token are no numbers; the token has no meaning. */
export const ENDED_BROKEN = 3;
/** In ThreadStep.ends: the grammar wants text that no token of the vocabulary has. */
export const ENDED_STUCK = 4;
/** In ThreadStep.ends: the library does not take the request's adapter, or no more of them. */
export const ENDED_UNFIT = 5;
/** Calls of other adapters have all the room that there is for adapters. */
export const ENDED_CROWDED = 6;
/** Like ENDED_STOP, of a text that its limit made end. */
export const ENDED_CUT = 7;
/** Like GOES_ON, of a text that its limit makes end. */
export const GOES_ON_CUT = 8;

/** Whether the choice has more tokens, given its entry in ThreadStep.ends. */
export function goesOn(end: number): boolean {
  return end === GOES_ON || end === GOES_ON_CUT;
}

/** The vector of an input; none where the model's state is no number. */
export interface ThreadEmbedding {
  readonly handle: number;
  readonly values: Float32Array | undefined;
}

/** What one step of the engine brought; the three arrays have one entry per sampled token. */
export interface ThreadStep {
  readonly kind: "step";
  readonly handles: Int32Array;
  readonly tokens: Int32Array;
  readonly ends: Uint8Array;
  /** One per token where any choice asked for log-probabilities. */
  readonly logprobs: readonly (RowLogprobs | undefined)[] | undefined;
  readonly started: readonly ThreadStarted[];
  /** Absent where there are none. */
  readonly embeddings?: readonly ThreadEmbedding[] | undefined;
  /** Absent where there are none. */
  readonly scores?: readonly ThreadScores[] | undefined;
  readonly load: ThreadLoad;
}

/** A number is where a step begins in the StepRing. */
export type ThreadEvent = ThreadReady | ThreadFatal | ThreadStep | number;
