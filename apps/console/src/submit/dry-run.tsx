import type { DryRun } from "@heddle/contracts/api/job-replies";
import type { JobSpec } from "@heddle/contracts/api/job-spec";
import { STRINGS } from "../strings.ts";
import { ErrorNote } from "../ui/error-note.tsx";
import { Card, PlainTable } from "../ui/parts.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";
import { withChange } from "./spec-fields.ts";

const text = STRINGS.submit;

interface DryRunOptions {
  readonly dryRun: DryRun | undefined;
  readonly error: unknown;
  readonly spec: JobSpec | undefined;
  readonly onChange: (spec: JobSpec) => void;
}

/** What would happen to the job now, and the changes that would help it. */
export function DryRunCard({ dryRun, error, spec, onChange }: DryRunOptions) {
  return (
    <Card title={text.dryRun}>
      <div aria-live="polite">
        {error ? <ErrorNote error={error} /> : null}
        {!error && !dryRun && <p className="muted">{text.checking}</p>}
        {!error && dryRun && <Outcome dryRun={dryRun} spec={spec} onChange={onChange} />}
      </div>
    </Card>
  );
}

interface OutcomeOptions {
  readonly dryRun: DryRun;
  readonly spec: JobSpec | undefined;
  readonly onChange: (spec: JobSpec) => void;
}

function Outcome({ dryRun, spec, onChange }: OutcomeOptions) {
  const { verdict, tasks, placement, never_fits, explanation } = dryRun;
  const blockers = never_fits.length > 0 ? never_fits : explanation.blockers;
  return (
    <>
      <p>
        <StatusBadge state={verdict} /> {text.verdicts[verdict](tasks)}
      </p>
      {blockers.length > 0 && (
        <ul>
          {blockers.map(({ message }) => (
            <li key={message}>{message}</li>
          ))}
        </ul>
      )}
      {explanation.changes.length > 0 && (
        <ul className="plain-list">
          {explanation.changes.map((change) => {
            const changed = spec && withChange(spec, change);
            const { field, from, to, outcome } = change;
            return (
              <li key={field}>
                <span>{STRINGS.jobs.change(field, from, to, outcome)}</span>
                {changed && (
                  <button type="button" onClick={() => onChange(changed)}>
                    {text.apply}
                  </button>
                )}
              </li>
            );
          })}
        </ul>
      )}
      {placement.length > 0 && (
        <PlainTable
          label={text.placement}
          head={[STRINGS.nodes.rank, STRINGS.jobs.node, STRINGS.nodes.devices]}
          rows={placement.map(({ rank, node, node_name, devices }) => ({
            key: String(rank),
            cells: [rank, node_name ?? node, devices.join(", ")],
          }))}
        />
      )}
    </>
  );
}
