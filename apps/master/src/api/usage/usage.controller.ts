import { AppError } from "@heddle/base/errors";
import {
  type UsageGroup,
  type UsageView,
  usageOperations,
} from "@heddle/contracts/api/limits/usage";
import type { QueryOf } from "@heddle/contracts/api/operation";
import type { Page } from "@heddle/contracts/api/parameters";
import { NANOS } from "@heddle/contracts/limits";
import type { UsageSum } from "@heddle/control/usage-sum";
import { Controller, Inject, Query, Req } from "@nestjs/common";
import type { CallerRequest } from "../../http/access.ts";
import { type Caller, requestCaller } from "../../http/identity/caller.ts";
import { Serves } from "../../http/serves.ts";
import { UsageReplication } from "../../usage/usage-replication.ts";
import { dayOf, dayOfText, dayText } from "../../usage/usage-row.ts";
import { pageOf } from "../page.ts";

const DEFAULT_DAYS = 30;
const DAY_S = 86_400;

type UsageQuery = QueryOf<typeof usageOperations.list>;

/** What the calls of all masters have used. */
@Controller()
export class UsageController {
  readonly #usage: UsageReplication;

  constructor(@Inject(UsageReplication) usage: UsageReplication) {
    this.#usage = usage;
  }

  @Serves(usageOperations.list)
  list(@Req() request: CallerRequest, @Query() query: UsageQuery): Page<UsageView> {
    const caller = requestCaller(request);
    const last = dayOfText(query.end ?? "") ?? dayOf({ atMs: Date.now() });
    const first = dayOfText(query.start ?? "") ?? last - DEFAULT_DAYS + 1;
    if (first > last) {
      throw new AppError("invalid_value", "Invalid value for 'start': it is after 'end'.", {
        param: "start",
      });
    }
    const groups = new Set<UsageGroup>(query.group_by ?? ["day"]);
    const views = new Map<string, Writable>();
    for (const sum of this.#usage.sums(first, last)) {
      if (isWanted(sum, query) && isOf(caller, sum.project))
        add(views, sum, { groups, first, last });
    }
    return pageOf([...views.entries()].sort(byId).map(viewOf), query);
  }
}

type Writable = { -readonly [Name in keyof UsageView]: UsageView[Name] };

interface Grouping {
  readonly groups: ReadonlySet<UsageGroup>;
  readonly first: number;
  readonly last: number;
}

function isWanted(sum: UsageSum, { key, project, model }: UsageQuery): boolean {
  return (
    (key === undefined || sum.key === key) &&
    (project === undefined || sum.project === project) &&
    (model === undefined || sum.model === model)
  );
}

/**
 * What other projects have used is theirs. A caller without `cluster:read` sees the projects in
 * which it has permissions; with some in all projects, the one of the call.
 */
function isOf({ project: own, grants }: Caller, project: string): boolean {
  const { projects } = grants;
  if (projects?.includes(project)) return true;
  const readsCluster = grants.mayEverywhere("cluster:read");
  if (projects === undefined) return readsCluster || project === own;
  return readsCluster && project === own;
}

function add(views: Map<string, Writable>, sum: UsageSum, grouping: Grouping): void {
  const { groups } = grouping;
  const day = groups.has("day") ? dayText(sum.day) : "";
  const of = (group: "key" | "project" | "model") => (groups.has(group) ? sum[group] : "");
  const id = [day, of("key"), of("project"), of("model")].join(" ");
  const view = views.get(id) ?? emptyView(id, sum, grouping);
  views.set(id, view);
  view.num_model_requests += sum.calls;
  view.num_failed_requests += sum.failed;
  view.input_tokens += sum.promptTokens;
  view.input_cached_tokens += sum.cachedTokens;
  view.output_tokens += sum.completionTokens;
  view.cost += sum.cost;
}

function emptyView(id: string, sum: UsageSum, { groups, first, last }: Grouping): Writable {
  const [from, to] = groups.has("day") ? [sum.day, sum.day] : [first, last];
  return {
    object: "usage",
    id,
    start_time: from * DAY_S,
    end_time: (to + 1) * DAY_S,
    api_key_id: groups.has("key") ? sum.key : null,
    project_id: groups.has("project") ? sum.project : null,
    model: groups.has("model") ? sum.model : null,
    num_model_requests: 0,
    num_failed_requests: 0,
    input_tokens: 0,
    input_cached_tokens: 0,
    output_tokens: 0,
    cost: 0,
  };
}

function byId([a]: [string, Writable], [b]: [string, Writable]): number {
  return a < b ? -1 : 1;
}

/** Sums of nano-units are exact; those of fractions are not. */
function viewOf([, view]: [string, Writable]): UsageView {
  return { ...view, cost: view.cost / NANOS };
}
