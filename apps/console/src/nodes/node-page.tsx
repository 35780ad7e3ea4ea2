import type { Worker as ClusterNode, NodeJobs } from "@heddle/contracts/api/workers";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { nodeQuery } from "../data/queries.ts";
import { useMay, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { ConfirmButton } from "../ui/confirm-button.tsx";
import { formatAgo, formatBytes, formatPercent } from "../ui/format.ts";
import { Card, Facts, Meter, PageHead, PlainTable, Waiting } from "../ui/parts.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";
import { useNow } from "../ui/use-now.ts";

const text = STRINGS.nodes;

/** One node: its devices, and what runs on it. */
export function NodePage() {
  const { id } = useParams({ from: "/nodes/$id" });
  const { heddle } = useSession();
  const { data: node, error } = useQuery(nodeQuery(heddle, id));
  if (!node) {
    return (
      <div className="page">
        <PageHead title={id} />
        <Waiting error={error} />
      </div>
    );
  }
  return (
    <div className="page">
      <PageHead title={node.name}>
        <NodeActions node={node} />
      </PageHead>
      <Card title={STRINGS.common.state}>
        <NodeFacts node={node} />
      </Card>
      <Card title={text.gpus}>
        {node.gpus.length === 0 ? <p className="muted">{text.noGpus}</p> : <Gpus node={node} />}
      </Card>
      {node.jobs && <Tasks jobs={node.jobs} />}
      <Replicas node={node} />
    </div>
  );
}

function NodeActions({ node: { id, name, jobs } }: { readonly node: ClusterNode }) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  const mayChange = useMay("cluster:admin");
  if (!mayChange || !jobs) return null;
  const refresh = () => queries.invalidateQueries({ queryKey: ["nodes"] });
  if (jobs.state === "ready") {
    return (
      <ConfirmButton
        label={text.drain}
        title={text.drainTitle(name)}
        text={text.drainText}
        confirm={text.drainConfirm}
        isDanger
        act={() => heddle.workers.drain(id).then(refresh)}
      />
    );
  }
  return (
    <ConfirmButton
      label={text.resume}
      title={text.resumeTitle(name)}
      text={text.resumeText}
      confirm={text.resumeConfirm}
      act={() => heddle.workers.resume(id).then(refresh)}
    />
  );
}

function NodeFacts({ node }: { readonly node: ClusterNode }) {
  const { jobs } = node;
  const now = useNow();
  const labels = Object.entries(jobs?.labels ?? {}).map(([name, value]) => `${name}=${value}`);
  return (
    <Facts
      rows={[
        [text.status, <StatusBadge key="status" state={node.status} />],
        ...(node.refuses_leader === null ? [] : [[text.refuses, node.refuses_leader] as const]),
        ...(node.executor_fault === null
          ? []
          : [[text.takesNoTasks, node.executor_fault] as const]),
        [STRINGS.common.kind, node.kind],
        [text.address, node.address],
        [text.version, node.version ?? STRINGS.common.unknown],
        [text.isolation, node.task_isolation ?? STRINGS.common.unknown],
        [text.seen, node.last_seen_at ? formatAgo(node.last_seen_at, now) : STRINGS.common.never],
        [text.rack, jobs?.rack ?? ""],
        [text.labels, labels.join(", ")],
        [text.taints, jobs?.taints.join(", ") ?? ""],
      ]}
    />
  );
}

function Gpus({ node }: { readonly node: ClusterNode }) {
  return (
    <PlainTable
      label={text.gpus}
      head={[text.gpu, text.gpuLoad, text.gpuMemory, text.temperature, text.power, text.fault]}
      rows={node.gpus.map((gpu) => ({
        key: gpu.uuid || String(gpu.index),
        cells: [
          `${gpu.index} ${gpu.name}${gpu.simulated ? ` (${STRINGS.common.simulated})` : ""}`,
          <Meter
            key="load"
            share={gpu.utilization_percent / 100}
            text={formatPercent(gpu.utilization_percent)}
          />,
          STRINGS.common.of(formatBytes(gpu.memory_used_bytes), formatBytes(gpu.memory_bytes)),
          `${Math.round(gpu.temperature_celsius)} °C`,
          `${Math.round(gpu.power_watts)} W`,
          gpu.fault ?? STRINGS.common.none,
        ],
      }))}
    />
  );
}

function Tasks({ jobs }: { readonly jobs: NodeJobs }) {
  return (
    <Card title={text.tasks}>
      {jobs.tasks.length === 0 ? (
        <p className="muted">{text.noTasks}</p>
      ) : (
        <PlainTable
          label={text.tasks}
          head={[text.job, text.attempt, text.rank, text.phase, text.devices]}
          rows={jobs.tasks.map(({ job_id, attempt, rank, phase, devices }) => ({
            key: `${job_id} ${attempt} ${rank}`,
            cells: [
              <Link key="job" to="/jobs/$id" params={{ id: job_id }}>
                {job_id}
              </Link>,
              attempt,
              rank,
              <StatusBadge key="phase" state={phase} />,
              devices.join(", "),
            ],
          }))}
        />
      )}
    </Card>
  );
}

function Replicas({ node: { replicas } }: { readonly node: ClusterNode }) {
  return (
    <Card title={text.replicas}>
      {replicas.length === 0 ? (
        <p className="muted">{text.noReplicas}</p>
      ) : (
        <PlainTable
          label={text.replicas}
          head={[text.model, text.phase, text.devices]}
          rows={replicas.map(({ deployment, phase, device }) => ({
            key: deployment,
            cells: [
              deployment,
              <StatusBadge key="phase" state={phase} />,
              device ?? STRINGS.common.unknown,
            ],
          }))}
        />
      )}
    </Card>
  );
}
