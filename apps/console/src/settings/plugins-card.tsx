import type { PluginView } from "@heddle/contracts/api/plugins/plugins";
import { useQuery } from "@tanstack/react-query";
import { pluginsQuery } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { formatCount } from "../ui/format.ts";
import { Card, PlainTable, Waiting } from "../ui/parts.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";

const text = STRINGS.settings;
const REFRESH_MS = 5_000;

/** The plugins of the master that serves this page, and how they failed. */
export function PluginsCard() {
  const { heddle } = useSession();
  const { data, error } = useQuery({ ...pluginsQuery(heddle), refetchInterval: REFRESH_MS });
  return (
    <Card title={text.plugins}>
      {!data && <Waiting error={error} />}
      {data?.length === 0 && <p className="muted">{text.noPlugin}</p>}
      {data && data.length > 0 && (
        <PlainTable
          label={text.plugins}
          head={[
            STRINGS.common.name,
            text.version,
            STRINGS.common.state,
            text.adds,
            text.calls,
            text.faults,
            text.restarts,
          ]}
          rows={data.map((plugin) => ({ key: plugin.id, cells: cellsOf(plugin) }))}
        />
      )}
    </Card>
  );
}

function cellsOf({
  id,
  version,
  state,
  reason,
  capabilities,
  calls,
  faults,
  restarts,
}: PluginView) {
  return [
    id,
    version ?? STRINGS.common.unknown,
    <div key="state">
      <StatusBadge state={state} />
      {reason !== null && <p className="muted">{reason}</p>}
    </div>,
    capabilities.join(", "),
    formatCount(calls),
    Object.entries(faults)
      .filter(([, count]) => count > 0)
      .map(([kind, count]) => `${kind} ${formatCount(count)}`)
      .join(", ") || STRINGS.common.none,
    formatCount(restarts),
  ];
}
