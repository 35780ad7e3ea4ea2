import type { Model } from "@heddle/contracts/api/models";
import { useQuery } from "@tanstack/react-query";
import {
  type ComponentProps,
  type FormEvent,
  type KeyboardEvent,
  useEffect,
  useRef,
  useState,
} from "react";
import { modelsQuery } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { PageHead, Waiting } from "../ui/parts.tsx";
import { AnswerView } from "./answer-view.tsx";
import { CodeDialog } from "./code-dialog.tsx";
import { NO_ANSWER, type StreamedAnswer, streamAnswer } from "./stream-answer.ts";
import { type OfferedTools, readTools } from "./tools.ts";

const text = STRINGS.playground;
const MAX_TOKENS = 256;
const TEMPERATURE = 0.7;

/** The settings of the next question. */
interface ChatSettings {
  readonly models: readonly string[];
  readonly system: string;
  readonly temperature: number;
  readonly maxTokens: number;
  /** As they are written, in JSON. */
  readonly tools: string;
  readonly mustCall: boolean;
}

/** A question and the answer of each asked model. */
interface ChatTurn {
  readonly id: number;
  readonly question: string;
  readonly answers: Readonly<Record<string, StreamedAnswer>>;
}

/** Chat with one model, or with two side by side. */
export function PlaygroundPage() {
  const { heddle } = useSession();
  const { data, error } = useQuery(modelsQuery(heddle));
  const chat = data?.filter(({ capabilities }) => capabilities.includes("chat"));
  return (
    <div className="page page-fill">
      {!chat && <Waiting error={error} />}
      {chat?.length === 0 && <p className="muted">{text.noModel}</p>}
      {chat && chat.length > 0 && <Playground models={chat} />}
    </div>
  );
}

function Playground({ models }: { readonly models: readonly Model[] }) {
  const first = models.find(({ status }) => status === "ready") ?? models[0]!;
  const [settings, setSettings] = useState<ChatSettings>({
    models: [first.id],
    system: "",
    temperature: TEMPERATURE,
    maxTokens: MAX_TOKENS,
    tools: "",
    mustCall: false,
  });
  const { offered, fault } = offeredBy(settings);
  const standIn = models.find(({ id, stand_in }) => stand_in && settings.models.includes(id));
  const { turns, isStreaming, ask, stop, clear } = useChat(settings, offered);
  const [question, setQuestion] = useState<string>(text.example);
  const request = {
    model: settings.models[0]!,
    messages: messagesOf(settings, turns, settings.models[0]!, question || text.example),
    temperature: settings.temperature,
    max_tokens: settings.maxTokens,
    ...offered,
  };
  return (
    <>
      <PageHead title={STRINGS.pages.playground}>
        <CodeDialog request={request} />
        <button type="button" disabled={turns.length === 0 || isStreaming} onClick={clear}>
          {text.clear}
        </button>
      </PageHead>
      <Settings models={models} settings={settings} onChange={setSettings} />
      <Tools settings={settings} fault={fault} onChange={setSettings} />
      {standIn && <p className="muted">{STRINGS.models.standIn(standIn.backing)}</p>}
      <Turns turns={turns} models={settings.models} />
      <Ask
        question={question}
        mayAsk={fault === undefined}
        onChange={setQuestion}
        onAsk={ask}
        onStop={isStreaming ? stop : undefined}
      />
    </>
  );
}

interface AskProps {
  readonly question: string;
  readonly mayAsk: boolean;
  readonly onChange: (question: string) => void;
  readonly onAsk: (question: string) => void;
  /** Undefined while no answer is under way. */
  readonly onStop: (() => void) | undefined;
}

/** The next question; Enter asks it. */
function Ask({ question, mayAsk, onChange, onAsk, onStop }: AskProps) {
  const isReady = mayAsk && question.trim() !== "";
  const submit = (event: FormEvent | KeyboardEvent) => {
    event.preventDefault();
    if (onStop || !isReady) return;
    onAsk(question);
    onChange("");
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    submit(event);
  };
  return (
    <form className="ask" onSubmit={submit}>
      <textarea
        aria-label={text.question}
        rows={2}
        value={question}
        placeholder={text.placeholder}
        onChange={({ target }) => onChange(target.value)}
        onKeyDown={onKeyDown}
      />
      {onStop ? (
        <button type="button" onClick={onStop}>
          {text.stop}
        </button>
      ) : (
        <button type="submit" className="primary" disabled={!isReady}>
          {text.send}
        </button>
      )}
    </form>
  );
}

function useChat(settings: ChatSettings, offered: OfferedTools) {
  const { heddle } = useSession();
  const [turns, setTurns] = useState<readonly ChatTurn[]>([]);
  const [running, setRunning] = useState<AbortController>();
  useEffect(() => () => running?.abort(), [running]);
  const ask = (question: string) => {
    const end = new AbortController();
    setRunning(end);
    const { models, temperature, maxTokens } = settings;
    const answers = Object.fromEntries(models.map((model) => [model, NO_ANSWER]));
    setTurns([...turns, { id: turns.length, question, answers }]);
    const change = (model: string, answer: StreamedAnswer) =>
      setTurns((old) =>
        old.map((turn) => (turn.id === turns.length ? answered(turn, model, answer) : turn)),
      );
    const streams = models.map((model) => {
      const messages = messagesOf(settings, turns, model, question);
      const request = { model, messages, temperature, max_tokens: maxTokens, ...offered };
      return streamAnswer(heddle, request, end.signal, (answer) => change(model, answer));
    });
    void Promise.all(streams).then(() => setRunning(undefined));
  };
  const stop = () => running?.abort();
  return { turns, isStreaming: running !== undefined, ask, stop, clear: () => setTurns([]) };
}

/** What the settings offer, or why their text offers nothing. */
function offeredBy({ tools, mustCall }: ChatSettings) {
  try {
    return { offered: readTools(tools, mustCall) };
  } catch (error) {
    return { offered: {}, fault: (error as Error).message };
  }
}

function answered(turn: ChatTurn, model: string, answer: StreamedAnswer): ChatTurn {
  return { ...turn, answers: { ...turn.answers, [model]: answer } };
}

/** The conversation with one model; questions without an answer are left out. */
function messagesOf(
  { system }: ChatSettings,
  turns: readonly ChatTurn[],
  model: string,
  question: string,
) {
  const said = turns.flatMap(({ question: asked, answers }) => {
    const content = answers[model]?.text;
    if (!content) return [];
    return [
      { role: "user" as const, content: asked },
      { role: "assistant" as const, content },
    ];
  });
  const head = system.trim() === "" ? [] : [{ role: "system" as const, content: system }];
  return [...head, ...said, { role: "user" as const, content: question }];
}

interface SettingsOptions {
  readonly models: readonly Model[];
  readonly settings: ChatSettings;
  readonly onChange: (settings: ChatSettings) => void;
}

function Settings({ models, settings, onChange }: SettingsOptions) {
  const [first = "", second = ""] = settings.models;
  const choose = (one: string, other: string) =>
    onChange({ ...settings, models: other === "" || other === one ? [one] : [one, other] });
  const options = models.map(({ id, status }) => (
    <option key={id} value={id}>
      {status === "ready" ? id : `${id} (${status})`}
    </option>
  ));
  return (
    <div className="filters">
      <label>
        {text.model}
        <select value={first} onChange={({ target }) => choose(target.value, second)}>
          {options}
        </select>
      </label>
      <label>
        {text.compare}
        <select value={second} onChange={({ target }) => choose(first, target.value)}>
          <option value="">{STRINGS.common.none}</option>
          {options}
        </select>
      </label>
      <NumberInput
        title={text.temperature}
        min={0}
        max={2}
        step={0.1}
        value={settings.temperature}
        onChange={(temperature) => onChange({ ...settings, temperature })}
      />
      <NumberInput
        title={text.maxTokens}
        min={1}
        value={settings.maxTokens}
        onChange={(maxTokens) => onChange({ ...settings, maxTokens })}
      />
      <label className="wide">
        {text.system}
        <input
          value={settings.system}
          onChange={({ target }) => onChange({ ...settings, system: target.value })}
        />
      </label>
    </div>
  );
}

interface NumberInputOptions
  extends Pick<ComponentProps<"input">, "title" | "min" | "max" | "step"> {
  /** At first. */
  readonly value: number;
  readonly onChange: (value: number) => void;
}

/** It keeps what is typed: a number that is not finished yet, as an empty field, changes nothing. */
function NumberInput({ title, value, onChange, ...limits }: NumberInputOptions) {
  return (
    <label>
      {title}
      <input
        type="number"
        {...limits}
        defaultValue={value}
        onChange={({ target: { valueAsNumber: number } }) => {
          if (!Number.isNaN(number)) onChange(number);
        }}
      />
    </label>
  );
}

interface ToolsOptions extends Omit<SettingsOptions, "models"> {
  readonly fault: string | undefined;
}

function Tools({ settings, fault, onChange }: ToolsOptions) {
  return (
    <details>
      <summary>{text.tools}</summary>
      <label>
        {text.toolsInJson}
        <textarea
          className="spec"
          rows={6}
          spellCheck={false}
          placeholder={text.toolsExample}
          value={settings.tools}
          onChange={({ target }) => onChange({ ...settings, tools: target.value })}
        />
      </label>
      {fault !== undefined && <p role="alert">{fault}</p>}
      <label className="check">
        <input
          type="checkbox"
          checked={settings.mustCall}
          onChange={({ target }) => onChange({ ...settings, mustCall: target.checked })}
        />
        {text.mustCall}
      </label>
    </details>
  );
}

interface TurnsOptions {
  readonly turns: readonly ChatTurn[];
  readonly models: readonly string[];
}

function Turns({ turns, models }: TurnsOptions) {
  const end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (turns.length > 0) end.current?.scrollIntoView({ block: "end" });
  }, [turns]);
  return (
    <section className="turns" aria-label={text.conversation} tabIndex={0}>
      {turns.map(({ id, question, answers }) => (
        <article key={id}>
          <p className="question">{question}</p>
          <div className="columns">
            {Object.entries(answers).map(([model, answer]) => (
              <AnswerView
                key={model}
                model={Object.keys(answers).length > 1 || models.length > 1 ? model : ""}
                answer={answer}
              />
            ))}
          </div>
        </article>
      ))}
      <div ref={end} />
    </section>
  );
}
