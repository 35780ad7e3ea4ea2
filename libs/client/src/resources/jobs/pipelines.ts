import type {
  BlockView,
  PipelineSummary,
  PipelineView,
} from "@heddle/contracts/api/pipelines/operations";
import type { PipelineDefinition } from "@heddle/contracts/api/pipelines/spec";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

/** Filters of a list; a pipeline must match all of them. */
export interface PipelineFilters {
  /** Pipelines per page, 1 to 1,000. */
  readonly limit?: number | undefined;
  readonly project?: string | undefined;
  readonly name?: string | undefined;
}

const STRONG = { consistency: "strong" } as const;

/** Pipelines of jobs: `heddle.pipelines`. */
export class Pipelines {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** Submits a pipeline. Repeated with the same idempotency key, it is the same pipeline. */
  create(spec: PipelineDefinition, options: ChangeOptions = {}): Promise<PipelineView> {
    return this.#transport.change({ method: "POST", path: "/pipelines", body: spec }, options);
  }

  /** Checks the pipeline and shows its jobs; submits nothing. */
  plan(spec: PipelineDefinition, { signal }: CallOptions = {}): Promise<PipelineView> {
    const request = { method: "POST", path: "/pipelines", body: spec, signal } as const;
    return this.#transport.json({ ...request, query: { dry_run: true }, isRepeatable: true });
  }

  /** The pipelines, newest first. */
  list(filters: PipelineFilters = {}, options: CallOptions = {}): Pages<PipelineSummary> {
    return new Pages(this.#transport, "/pipelines", { ...filters }, options);
  }

  /** The pipeline with the jobs of its steps. */
  get(id: string, { signal }: CallOptions = {}): Promise<PipelineView> {
    return this.#transport.json({ method: "GET", path: pathOf(id), query: STRONG, signal });
  }

  /** Cancels it and the jobs of its steps; repeating it does no harm. */
  cancel(id: string, options: ChangeOptions = {}): Promise<PipelineView> {
    return this.#transport.change({ method: "DELETE", path: pathOf(id) }, options);
  }

  /** What steps can run. */
  async blocks({ signal }: CallOptions = {}): Promise<readonly BlockView[]> {
    const list = await this.#transport.json<{ data: readonly BlockView[] }>({
      method: "GET",
      path: "/blocks",
      signal,
    });
    return list.data;
  }
}

function pathOf(id: string): string {
  return `/pipelines/${pathPart(id)}`;
}
