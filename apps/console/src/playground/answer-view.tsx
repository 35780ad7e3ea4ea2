import { STRINGS } from "../strings.ts";
import { CodeBlock } from "../ui/code-block.tsx";
import { ErrorNote } from "../ui/error-note.tsx";
import { formatCompact, formatCount } from "../ui/format.ts";
import type { StreamedAnswer } from "./stream-answer.ts";

const text = STRINGS.playground;

interface AnswerViewOptions {
  /** Empty where there is one model. */
  readonly model: string;
  readonly answer: StreamedAnswer;
}

/** One answer with its speed. It is shown as text: nothing of it is read as HTML. */
export function AnswerView({ model, answer }: AnswerViewOptions) {
  const { state, reasoning, calls, error } = answer;
  return (
    <div className="card answer" aria-busy={state === "streaming"}>
      {model !== "" && <h2>{model}</h2>}
      {reasoning !== "" && (
        <details>
          <summary>{text.reasoning}</summary>
          <p className="said">{reasoning}</p>
        </details>
      )}
      <p className="said">{answer.text || (state === "streaming" ? text.waiting : "")}</p>
      {calls.map(({ index, name, arguments: given }) => (
        <CodeBlock key={index} label={text.callOf(name)} text={`${name}(${given})`} />
      ))}
      {state === "failed" && <ErrorNote error={error} />}
      <p className="muted speed">{speedOf(answer)}</p>
    </div>
  );
}

function speedOf({ state, ttftMs, tokens, tokensPerSecond }: StreamedAnswer): string {
  return [
    state === "stopped" ? text.stopped : "",
    ttftMs === undefined ? "" : text.ttft(formatCount(Math.round(ttftMs))),
    tokens === undefined ? "" : text.tokens(formatCount(tokens)),
    tokensPerSecond === undefined ? "" : text.speed(formatCompact(tokensPerSecond)),
  ]
    .filter((part) => part !== "")
    .join(" · ");
}
