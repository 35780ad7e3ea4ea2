import type { JobSpec } from "@heddle/contracts/api/job-spec";
import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { jobQuery } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { ErrorNote } from "../ui/error-note.tsx";
import { PageHead, Waiting } from "../ui/parts.tsx";
import { DryRunCard } from "./dry-run.tsx";
import { EXAMPLE_SPEC } from "./spec-fields.ts";
import { SpecForm } from "./spec-form.tsx";
import { parseSpec, specText } from "./spec-text.ts";
import { useSubmit } from "./use-submit.ts";

const text = STRINGS.submit;
/** The text is checked when it has not changed for this long. */
const PAUSE_MS = 500;

/** Submit a job from a form or as YAML; the cluster checks it while it is written. */
export function SubmitPage() {
  const { from } = useSearch({ from: "/submit" });
  const { heddle } = useSession();
  const { data: old, error } = useQuery({
    ...jobQuery(heddle, from ?? ""),
    enabled: from !== undefined,
    refetchInterval: false,
  });
  if (from !== undefined && !old) {
    return (
      <div className="page">
        <Waiting error={error} />
      </div>
    );
  }
  return <SubmitForm first={specText(old ? written(old.spec) : EXAMPLE_SPEC)} />;
}

/** The fields of a stored spec; JSON leaves out those without a value. */
function written(spec: unknown): JobSpec {
  return JSON.parse(JSON.stringify(spec)) as JobSpec;
}

function SubmitForm({ first }: { readonly first: string }) {
  const { heddle } = useSession();
  const [source, setSource] = useState(first);
  const settled = useSettled(source, PAUSE_MS);
  const parsed = parseSpec(source);
  const checked = parseSpec(settled);
  const dryRun = useQuery({
    queryKey: ["dry-run", settled],
    queryFn: ({ signal }) =>
      "spec" in checked ? heddle.jobs.explain(checked.spec, { signal }) : null,
    enabled: "spec" in checked,
    gcTime: 0,
  });
  const change = (spec: JobSpec) => setSource(specText(spec));
  const { submit, isBusy, error } = useSubmit();
  const isFaulty = !("spec" in parsed) || dryRun.error !== null;
  return (
    <div className="page">
      <PageHead title={STRINGS.pages.submit}>
        <button type="button" onClick={() => setSource(specText(EXAMPLE_SPEC))}>
          {text.example}
        </button>
        <button
          type="button"
          className="primary"
          disabled={isBusy || isFaulty}
          onClick={() => "spec" in parsed && submit(parsed.spec)}
        >
          {text.submit}
        </button>
      </PageHead>
      {error !== undefined && <ErrorNote error={error} />}
      <div className="columns">
        {"spec" in parsed ? (
          <SpecForm spec={parsed.spec} onChange={change} />
        ) : (
          <ErrorNote error={new Error(parsed.fault || text.noObject)} />
        )}
        <section className="card">
          <label className="stacked">
            {text.yaml}
            <textarea
              className="spec"
              rows={22}
              spellCheck={false}
              value={source}
              onChange={({ target }) => setSource(target.value)}
            />
          </label>
        </section>
      </div>
      <DryRunCard
        dryRun={dryRun.data ?? undefined}
        error={dryRun.error}
        spec={"spec" in parsed ? parsed.spec : undefined}
        onChange={change}
      />
    </div>
  );
}

/** The value once it has not changed for a while. */
function useSettled(value: string, pauseMs: number): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), pauseMs);
    return () => clearTimeout(timer);
  }, [value, pauseMs]);
  return settled;
}
