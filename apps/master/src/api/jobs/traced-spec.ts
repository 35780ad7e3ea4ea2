import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import type { ControlState } from "@heddle/control/state";
import { JOB_TRACE, newJobTrace } from "@heddle/observability/tracing/job-trace";
import type { TraceContext } from "@heddle/observability/tracing/trace-context";
import { currentSpan } from "@heddle/observability/tracing/tracing";

/** The bound of a spec's variables: a trace must not make a job invalid. */
const MAX_VARIABLES = 1_024;

/** A job as it is submitted. */
interface Submission {
  readonly jobId: string;
  readonly isIdGiven: boolean;
  /** The span that the client names. */
  readonly trace?: TraceContext | undefined;
  readonly specs: ControlState["specs"];
}

/** The spec with the variable that names the job's trace; as it is where traces are off. */
export function tracedSpec(
  spec: SubmitJob,
  { jobId, isIdGiven, trace: caller, specs }: Submission,
): SubmitJob {
  const span = currentSpan()?.context;
  const variables = spec.environment_variables;
  if (JOB_TRACE in variables || Object.keys(variables).length >= MAX_VARIABLES) return spec;
  // The same job again has the variable that it got, also from a master that traces nothing.
  const before = specs.get(jobId)?.environment_variables[JOB_TRACE];
  const traced = before ?? (span && newJobTrace(jobId, { span, caller }, isIdGiven));
  if (traced === undefined) return spec;
  return { ...spec, environment_variables: { ...variables, [JOB_TRACE]: traced } };
}
