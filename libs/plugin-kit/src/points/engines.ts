/** A chat call of a model that the engine serves. */
export interface EngineCall {
  /** The model's name in its registration. */
  readonly model: string;
  /** The path of its weights; absent where the model has no `source`. */
  readonly modelFile: string | undefined;
  readonly messages: readonly EngineMessage[];
  /** All of the call, in the names of OpenAI's API: `temperature`, `seed`, `tools`. */
  readonly parameters: Readonly<Record<string, unknown>>;
  /** Aborts when the caller has gone, or the answer has its length. */
  readonly signal: AbortSignal;
}

interface EngineMessage {
  readonly role: string;
  readonly content: string | null;
}

/** What answers the calls of models whose registration names the command `PLUGIN.NAME`. */
export interface PluginEngine {
  readonly name: string;
  /** The pieces of the answer, in order. Each counts as a token. */
  answer(call: EngineCall): AsyncIterable<string>;
  /** The tokens of a text of the prompt; a quarter of its bytes by default. */
  tokensOf?(text: string): number;
}
