import { AppError } from "@heddle/base/errors";
import type {
  ChatMessage,
  ReasoningEffort,
  ToolCall,
  ToolDefinition,
} from "@heddle/contracts/engine";
import { Environment, Interpreter, Template } from "@huggingface/jinja";
import { type CallForm, callFormOf, HERMES } from "./call-form.ts";
import { effortVariables } from "./reasoning-effort.ts";
import { strftime } from "./strftime.ts";
import { rewriteStrips, STRIP_FUNCTIONS } from "./strip-calls.ts";
import {
  oneCallEach,
  shortId,
  toolShape,
  withoutSystem,
  withoutTools,
  withToolPrompt,
  writtenCalls,
} from "./tool-prompt.ts";

/** How messages become a prompt. */
interface RenderOptions {
  readonly addGenerationPrompt: boolean;
  /** What the template sees of each text in the messages; the text itself where absent. */
  readonly quote?: ((text: string) => string) | undefined;
  readonly tools?: readonly ToolDefinition[] | undefined;
  readonly effort?: ReasoningEffort | undefined;
}

/** What shows whether a template presents tools and writes calls itself. */
const PROBE_TOOL = { name: "probe", description: "probing", parameters: '{"type":"object"}' };
const PROBE: readonly ChatMessage[] = [
  { role: "user", content: "a" },
  {
    role: "assistant",
    content: null,
    toolCalls: [
      { id: "probe1234", type: "function", function: { name: "probe", arguments: "{}" } },
    ],
  },
  { role: "tool", content: "b", toolCallId: "probe1234" },
  { role: "assistant", content: "c" },
  { role: "user", content: "d" },
];

/** What a template prints that joins an object to a text. */
const PRINTED_OBJECT = "[object ";

/** A template may not build a list longer than this. */
const MAX_RANGE_ITEMS = 100_000;

/**
 * A model's jinja chat template, as Hugging Face's `apply_chat_template` runs it
 * (https://huggingface.co/docs/transformers/chat_templating).
 *
 * - Variables: `messages`, `add_generation_prompt`, `bos_token`, `eos_token`, `tools`, `documents`
 *   (none) and those of the effort of reasoning.
 * - Functions: `raise_exception`, `strftime_now` (in UTC) and `range`.
 */
export class ChatTemplate {
  readonly #template: Template;
  readonly #tokens: { readonly bos: string; readonly eos: string };
  readonly #now: () => Date;
  readonly #knowsDeveloper: boolean;
  readonly #testsForNone: boolean;
  readonly #knowsToolCalls: boolean;
  readonly #takesOneCall: boolean;
  /** In which form its model writes calls; undefined where none is known. */
  readonly #form: CallForm | undefined;
  /** Whether it presents tools, and writes calls in that form. */
  readonly #shows: { readonly tools: boolean; readonly calls: boolean };
  /** It joins the arguments of a call to other texts: they are no object there. */
  #hasTextArguments = false;
  /** The same of a template that presents tools and drops calls: they become text in that form. */
  readonly #writtenForm: CallForm | undefined;

  /** Throws `invalid_value` where the source is no jinja. */
  constructor(
    source: string,
    tokens: { readonly bos: string; readonly eos: string },
    now: () => Date = () => new Date(),
  ) {
    this.#template = parse(source);
    rewriteStrips(this.#template.parsed);
    this.#tokens = tokens;
    this.#now = now;
    this.#knowsDeveloper = /["']developer["']/.test(source);
    this.#knowsToolCalls = /\btool_calls\b|\|\s*tojson\b/.test(source);
    this.#takesOneCall = /\btool_calls\s*\|\s*length\s*==\s*1|\btool_calls\[0\]/.test(source);
    this.#testsForNone = /\bcontent\b['"\])]*\s+is\s+(not\s+)?none\b/i.test(source);
    const form = callFormOf(source);
    this.#writtenForm = /\btool_calls\b/.test(source) ? undefined : form;
    this.#shows = this.#probe(form);
    const isShown = this.#shows.tools && this.#shows.calls;
    this.#form = isShown || form?.isNative ? form : undefined;
  }

  /** The form in which a model of this template calls tools. */
  get callForm(): CallForm {
    return this.#form ?? HERMES;
  }

  /** Whether the template shows a tool, and a call of it in that form. */
  #probe(form: CallForm | undefined): { tools: boolean; calls: boolean } {
    const none = { tools: false, calls: false };
    if (form === undefined) return none;
    for (const isText of [false, true]) {
      this.#hasTextArguments = isText;
      try {
        const text = this.#run(PROBE, { addGenerationPrompt: true, tools: [PROBE_TOOL] });
        const calls = text.includes(`${form.shown ?? form.before}${PROBE_TOOL.name}`);
        if (!text.includes(PRINTED_OBJECT)) {
          return { tools: text.includes(PROBE_TOOL.description), calls };
        }
      } catch {
        // Perhaps it takes the arguments as a text.
      }
    }
    this.#hasTextArguments = false;
    return none;
  }

  /**
   * The prompt's text. Throws `invalid_value` with param `messages` where the template refuses.
   * - Most templates know no names: a participant's name then precedes the message's text, as `Alice: Hello`.
   * - Tools, calls and their answers become text where the template would drop them; see withoutTools.
   */
  render(messages: readonly ChatMessage[], options: RenderOptions): string {
    const { tools = [] } = options;
    const form = this.#form;
    if (tools.length > 0 && form !== undefined && this.#shows.calls && !this.#shows.tools) {
      return this.render(withToolPrompt(messages, tools, form), { ...options, tools: [] });
    }
    const isText =
      tools.length > 0 ? form === undefined || !this.#shows.tools : !this.#knowsToolCalls;
    if (!isText || (tools.length === 0 && !messages.some(isOfTools))) {
      try {
        return this.#named(this.#takesOneCall ? oneCallEach(messages) : messages, options);
      } catch (error) {
        // A template may fail on one tool's schema, and the tools become text then.
        if (tools.length === 0 || isRefusal(error)) throw error;
      }
    }
    const plain = withoutTools(messages, tools, form);
    const textual = { ...options, tools: [] };
    try {
      return this.#named(plain, textual);
    } catch (error) {
      if (tools.length === 0 || plain[0]?.role !== "system") throw error;
      return this.#named(withoutSystem(plain), textual);
    }
  }

  #named(messages: readonly ChatMessage[], options: RenderOptions): string {
    return this.#run(messages.some(hasName) ? this.#showNames(messages) : messages, options);
  }

  /** Renders a mark for each name, to find those that the template drops. */
  #showNames(messages: readonly ChatMessage[]): ChatMessage[] {
    const mark = (index: number) => `participant-${index}.`;
    const marked = messages.map((message, i) => {
      const content = message.content === null ? null : "x";
      return { ...message, content, ...(hasName(message) && { name: mark(i) }) };
    });
    const text = this.#run(marked, { addGenerationPrompt: false });
    return messages.map((message, i) => {
      if (!hasName(message) || text.includes(mark(i))) return message;
      const { name, ...anonymous } = message;
      return { ...anonymous, content: `${name}: ${message.content ?? ""}`.trimEnd() };
    });
  }

  /** Some templates fail on a null content or null tools, and accept empty ones. */
  #run(messages: readonly ChatMessage[], options: RenderOptions): string {
    const tools = toolsOf(options);
    try {
      return this.#runOnce(messages, options, tools);
    } catch (error) {
      const hasNone = tools === null || messages.some(({ content }) => content === null);
      if (isRefusal(error) || !hasNone) throw error;
      const filled = messages.map((message) => ({ ...message, content: message.content ?? "" }));
      return this.#runOnce(filled, options, tools ?? []);
    }
  }

  #runOnce(messages: readonly ChatMessage[], options: RenderOptions, tools: unknown): string {
    const environment = new Environment();
    const variables = {
      ...this.#globals(),
      messages: messages.map((message) => this.#toTemplateShape(message, options.quote)),
      add_generation_prompt: options.addGenerationPrompt,
      bos_token: this.#tokens.bos,
      eos_token: this.#tokens.eos,
      tools,
      documents: null,
      ...effortVariables(options.effort),
    };
    for (const [name, value] of Object.entries(variables)) environment.set(name, value);
    return runTemplate(this.#template, environment);
  }

  #globals(): Record<string, unknown> {
    return {
      true: true,
      True: true,
      false: false,
      False: false,
      none: null,
      None: null,
      range,
      ...STRIP_FUNCTIONS,
      raise_exception: (message: unknown) => {
        throw new TemplateRefusal(String(message));
      },
      strftime_now: (format: string) => strftime(this.#now(), format),
    };
  }

  #toTemplateShape(message: ChatMessage, quote = asIs): Record<string, unknown> {
    // Templates of models that were trained before the developer role know it as the system's.
    const role = message.role === "developer" && !this.#knowsDeveloper ? "system" : message.role;
    // A template that never tests for none would print it or fail on it.
    const content = message.content ?? (this.#testsForNone ? null : "");
    const { name, toolCallId, toolCalls = [] } = message;
    const calls = toolCalls.map((call) => this.#callShape({ ...call, id: this.#idOf(call.id) }));
    const sent = {
      content,
      ...(name === undefined ? {} : { name }),
      ...(toolCallId === undefined ? {} : { tool_call_id: this.#idOf(toolCallId) }),
      ...(calls.length > 0 ? { tool_calls: calls } : {}),
    };
    const quoted = mapTexts(sent, quote) as typeof sent;
    const form = this.#writtenForm;
    if (form === undefined || calls.length === 0) return { role, ...quoted };
    return { role, content: `${quoted.content ?? ""}${writtenCalls(form, toolCalls, quote)}` };
  }

  #callShape(call: ToolCall) {
    return this.#hasTextArguments ? call : toolCallShape(call);
  }

  #idOf(id: string): string {
    return this.#form?.hasShortIds ? shortId(id) : id;
  }
}

function hasName({ name }: ChatMessage): boolean {
  return name !== undefined && name !== "";
}

function isOfTools({ role, toolCalls }: ChatMessage): boolean {
  return role === "tool" || (toolCalls !== undefined && toolCalls.length > 0);
}

/** What the template sees as `tools`. */
function toolsOf({ tools = [], quote = asIs }: RenderOptions): unknown {
  return tools.length === 0 ? null : tools.map((tool) => mapTexts(toolShape(tool), quote));
}

/** What `raise_exception` throws: the template itself refuses the messages. */
class TemplateRefusal extends Error {}

function isRefusal(error: unknown): boolean {
  return error instanceof AppError && error.cause instanceof TemplateRefusal;
}

function parse(source: string): Template {
  try {
    return new Template(source);
  } catch (cause) {
    throw new AppError(
      "invalid_value",
      `the model's chat template is not valid Jinja: ${reasonOf(cause)}. Give another with the option chatTemplate.`,
      { param: "chatTemplate", cause },
    );
  }
}

function runTemplate(template: Template, environment: Environment): string {
  try {
    const result = new Interpreter(environment).run(template.parsed);
    return String(result.value);
  } catch (cause) {
    const message =
      cause instanceof TemplateRefusal
        ? `the model's chat template refuses these messages: ${cause.message}`
        : `the model's chat template cannot render these messages: ${reasonOf(cause)}`;
    throw new AppError("invalid_value", message, { param: "messages", cause });
  }
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** Templates print a call's arguments with `tojson`, so they get the object, not its text. */
function toolCallShape(call: NonNullable<ChatMessage["toolCalls"]>[number]) {
  return {
    id: call.id,
    type: call.type,
    function: { name: call.function.name, arguments: argumentsShape(call.function.arguments) },
  };
}

function asIs(text: string): string {
  return text;
}

/** The same value with every text in it, names of members too, as `map` has it. */
function mapTexts(value: unknown, map: (text: string) => string): unknown {
  if (typeof value === "string") return map(value);
  if (Array.isArray(value)) return value.map((item) => mapTexts(item, map));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [map(name), mapTexts(member, map)]),
  );
}

function argumentsShape(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : text;
  } catch {
    // The caller's history may hold a call that was cut off; the template sees its text as it is.
    return text;
  }
}

function range(first: number, second?: number, step = 1): number[] {
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (!(length <= MAX_RANGE_ITEMS)) throw new Error(`range() of ${length} items`);
  return Array.from({ length }, (_, i) => start + i * step);
}
