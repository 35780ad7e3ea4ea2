import type { JobSpec } from "@heddle/contracts/api/job-spec";
import { useId } from "react";
import { STRINGS } from "../strings.ts";
import { fieldAt, withField } from "./spec-fields.ts";

const text = STRINGS.submit.fields;

interface SpecField {
  readonly path: readonly string[];
  readonly title: string;
  readonly kind: "text" | "number" | "lines";
}

/** The fields that most jobs have; all others are in the YAML beside it. */
const FIELDS: readonly SpecField[] = [
  { path: ["name"], title: text.name, kind: "text" },
  { path: ["command"], title: text.command, kind: "lines" },
  { path: ["algorithm"], title: text.algorithm, kind: "text" },
  { path: ["container_image"], title: text.image, kind: "text" },
  { path: ["project"], title: text.project, kind: "text" },
  { path: ["queue"], title: text.queue, kind: "text" },
  { path: ["resources", "gpu_count"], title: text.gpuCount, kind: "number" },
  { path: ["resources", "gpu_type"], title: text.gpuType, kind: "text" },
  { path: ["resources", "cpu_cores"], title: text.cpuCores, kind: "number" },
  { path: ["resources", "memory_gb"], title: text.memory, kind: "number" },
  { path: ["tasks"], title: text.tasks, kind: "number" },
  { path: ["retry_limit"], title: text.retries, kind: "number" },
  { path: ["max_runtime_hours"], title: text.hours, kind: "number" },
];

interface SpecFormOptions {
  readonly spec: JobSpec;
  readonly onChange: (spec: JobSpec) => void;
}

/** A form over a spec. A value that the form cannot show is left as it is. */
export function SpecForm({ spec, onChange }: SpecFormOptions) {
  return (
    <section className="card form-grid" aria-label={STRINGS.submit.form}>
      {FIELDS.map((field) => (
        <SpecInput key={field.path.join(".")} field={field} spec={spec} onChange={onChange} />
      ))}
    </section>
  );
}

interface SpecInputOptions extends SpecFormOptions {
  readonly field: SpecField;
}

function SpecInput({ field: { path, title, kind }, spec, onChange }: SpecInputOptions) {
  const id = useId();
  const value = fieldAt(spec, path);
  const isShown = value === undefined || typeof value === "string" || typeof value === "number";
  const shown = isShown ? String(value ?? "") : JSON.stringify(value);
  const set = (given: string) => {
    const next = given === "" ? undefined : kind === "number" ? Number(given) : given;
    onChange(withField(spec, path, next));
  };
  return (
    <div className={kind === "lines" ? "field wide" : "field"}>
      <label htmlFor={id}>{title}</label>
      {kind === "lines" ? (
        <textarea
          id={id}
          rows={4}
          spellCheck={false}
          disabled={!isShown}
          value={shown}
          onChange={({ target }) => set(target.value)}
        />
      ) : (
        <input
          id={id}
          type={kind === "number" ? "number" : "text"}
          min={0}
          step="any"
          disabled={!isShown}
          value={shown}
          onChange={({ target }) => set(target.value)}
        />
      )}
    </div>
  );
}
