import type { UsageGroup, UsageView } from "@heddle/contracts/api/limits/usage";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { formatCompact, formatCount } from "../ui/format.ts";
import { PageHead, Waiting } from "../ui/parts.tsx";
import { type TableColumn, VirtualTable } from "../ui/virtual-table.tsx";

const text = STRINGS.usage;
const GROUPS = ["day", "model", "project", "key"] as const satisfies readonly UsageGroup[];
const SPANS = [1, 7, 30, 90] as const;
const DAY_MS = 86_400_000;
const REFRESH_MS = 15_000;
/** Sums of one list. */
const MAX_ROWS = 5_000;

/** What calls have used, by day, model, project or key. */
export function UsagePage() {
  const [group, setGroup] = useState<UsageGroup>("day");
  const [days, setDays] = useState<number>(30);
  const { data, error } = useUsage(group, days);
  return (
    <div className="page page-fill">
      <PageHead title={STRINGS.pages.usage} />
      <div className="filters">
        <label>
          {text.by}
          <select
            value={group}
            onChange={({ target }) =>
              setGroup(GROUPS.find((each) => each === target.value) ?? "day")
            }
          >
            {GROUPS.map((each) => (
              <option key={each} value={each}>
                {text.groups[each]}
              </option>
            ))}
          </select>
        </label>
        <label>
          {text.span}
          <select value={days} onChange={({ target }) => setDays(Number(target.value))}>
            {SPANS.map((each) => (
              <option key={each} value={each}>
                {text.days(each)}
              </option>
            ))}
          </select>
        </label>
      </div>
      {!data && <Waiting error={error} />}
      {data && (
        <VirtualTable
          label={text.table}
          columns={columnsOf(group)}
          rows={data}
          keyOf={({ id }) => id}
          empty={text.empty}
        />
      )}
    </div>
  );
}

/** The sums of the last days. */
function useUsage(group: UsageGroup, days: number) {
  const { heddle } = useSession();
  return useQuery({
    queryKey: ["usage", group, days],
    queryFn: async ({ signal }) => {
      const start = new Date(Date.now() - (days - 1) * DAY_MS).toISOString().slice(0, 10);
      const rows: UsageView[] = [];
      for await (const row of heddle.usage.list({ start, group_by: [group] }, { signal })) {
        if (rows.push(row) >= MAX_ROWS) break;
      }
      return rows;
    },
    refetchInterval: REFRESH_MS,
  });
}

function columnsOf(group: UsageGroup): readonly TableColumn<UsageView>[] {
  const number = (title: string, cell: (row: UsageView) => string): TableColumn<UsageView> => ({
    title,
    width: "minmax(9rem, 1fr)",
    isNumber: true,
    cell,
  });
  return [
    {
      title: text.groups[group],
      width: "minmax(10rem, 2fr)",
      cell: (row) => subjectOf(row, group),
    },
    number(text.calls, (row) => formatCount(row.num_model_requests)),
    number(text.failed, (row) => formatCount(row.num_failed_requests)),
    number(text.input, (row) => formatCount(row.input_tokens)),
    number(text.cached, (row) => formatCount(row.input_cached_tokens)),
    number(text.output, (row) => formatCount(row.output_tokens)),
    number(text.cost, (row) => formatCompact(row.cost)),
  ];
}

function subjectOf(row: UsageView, group: UsageGroup): string {
  if (group === "day") return new Date(row.start_time * 1_000).toISOString().slice(0, 10);
  const subject = { key: row.api_key_id, project: row.project_id, model: row.model }[group];
  return subject ?? STRINGS.common.none;
}
