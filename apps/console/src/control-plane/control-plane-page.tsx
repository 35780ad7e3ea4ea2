import type { ClusterMetricsReply, ClusterStatusReply } from "@heddle/contracts/api/cluster";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { metricsQuery, statusQuery } from "../data/queries.ts";
import { useMay, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { ConfirmButton } from "../ui/confirm-button.tsx";
import { formatBytes, formatCompact, formatCount, formatSpan } from "../ui/format.ts";
import { Card, Facts, PageHead, PlainTable, Waiting } from "../ui/parts.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";

const text = STRINGS.controlPlane;

/** The masters: the leader, the term, the log, and how far each is behind. */
export function ControlPlanePage() {
  const { heddle } = useSession();
  const status = useQuery(statusQuery(heddle));
  const metrics = useQuery(metricsQuery(heddle));
  return (
    <div className="page">
      <PageHead title={STRINGS.pages.controlPlane}>
        <SnapshotButton />
      </PageHead>
      {status.data ? (
        <>
          <Card title={STRINGS.common.state}>
            <GroupFacts status={status.data} metrics={metrics.data} />
          </Card>
          <Card title={text.masters}>
            <Masters status={status.data} />
          </Card>
        </>
      ) : (
        <Waiting error={status.error} />
      )}
      {metrics.data && (
        <Card title={text.memory}>
          <StateMemory metrics={metrics.data} />
        </Card>
      )}
    </div>
  );
}

interface GroupFactsOptions {
  readonly status: ClusterStatusReply;
  readonly metrics: ClusterMetricsReply | undefined;
}

function GroupFacts({ status, metrics }: GroupFactsOptions) {
  const { quorum } = status;
  const raft = metrics?.raft;
  const count = (value: number | undefined) =>
    value === undefined ? STRINGS.common.unknown : formatCount(value);
  return (
    <Facts
      rows={[
        [text.health, <StatusBadge key="health" state={status.health} />],
        [STRINGS.shell.leader, status.leader ?? STRINGS.shell.noLeader],
        [text.answeredBy, status.answered_by ?? STRINGS.common.unknown],
        [text.term, count(status.term)],
        [text.commit, count(status.commit)],
        [text.applied, count(status.applied)],
        [text.snapshot, count(status.snapshot_index)],
        [text.quorum, text.quorumOf(quorum.reachable, quorum.required, quorum.voters)],
        [text.version, `${status.version}, ${count(status.cluster_version)}`],
        [text.uptime, formatSpan(status.uptime_seconds * 1_000)],
        [text.proposals, raft ? formatCompact(raft.proposals_per_second) : STRINGS.common.unknown],
        [
          text.apply,
          raft?.apply_latency_ms == null ? "" : `${formatCompact(raft.apply_latency_ms)} ms`,
        ],
      ]}
    />
  );
}

function Masters({ status }: { readonly status: ClusterStatusReply }) {
  const mayChange = useMay("cluster:admin");
  const masters = status.masters.toSorted((a, b) => a.id.localeCompare(b.id));
  return (
    <PlainTable
      label={text.masters}
      head={[
        STRINGS.common.name,
        text.role,
        text.address,
        text.connected,
        text.lag,
        STRINGS.common.actions,
      ]}
      rows={masters.map(({ id, role, address, connected, lag, behind }) => ({
        key: id,
        cells: [
          id,
          <StatusBadge key="role" state={role} />,
          address ?? "",
          connected === undefined ? "" : connected ? text.yes : text.no,
          lag === null || lag === undefined
            ? STRINGS.common.unknown
            : `${formatCount(lag)}${behind ? ` (${text.behind})` : ""}`,
          mayChange && role === "follower" && <TransferButton key="transfer" to={id} />,
        ],
      }))}
    />
  );
}

function TransferButton({ to }: { readonly to: string }) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  return (
    <ConfirmButton
      label={text.transfer}
      title={text.transferTitle(to)}
      text={text.transferText}
      confirm={text.transferConfirm}
      act={async () => {
        await heddle.cluster.transfer(to);
        await queries.invalidateQueries({ queryKey: ["status"] });
      }}
    />
  );
}

function SnapshotButton() {
  const { heddle } = useSession();
  const mayChange = useMay("cluster:admin");
  if (!mayChange) return null;
  return (
    <ConfirmButton
      label={text.takeSnapshot}
      title={text.snapshotTitle}
      text={text.snapshotText}
      confirm={text.snapshotConfirm}
      act={() => heddle.cluster.snapshot()}
    />
  );
}

function StateMemory({ metrics }: { readonly metrics: ClusterMetricsReply }) {
  return (
    <PlainTable
      label={text.memory}
      head={[text.records, text.used, text.limit]}
      rows={Object.entries(metrics.state).map(([kind, { bytes, limit_bytes }]) => ({
        key: kind,
        cells: [kind, formatBytes(bytes), formatBytes(limit_bytes)],
      }))}
    />
  );
}
