import type { Model, ModelReplica } from "@heddle/contracts/api/models";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { modelsQuery, nodesQuery } from "../data/queries.ts";
import { useMay, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { ConfirmButton } from "../ui/confirm-button.tsx";
import { formatBytes, formatCount } from "../ui/format.ts";
import { Facts, Meter, PageHead, PlainTable, Waiting } from "../ui/parts.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";
import { LoadModel } from "./load-model.tsx";
import { ScaleModel } from "./scale-model.tsx";

const text = STRINGS.models;

/** The models with their replicas; load, unload, scale and remove them. */
export function ModelsPage() {
  const { heddle } = useSession();
  const { data, error } = useQuery(modelsQuery(heddle));
  const mayDeploy = useMay("models:deploy");
  return (
    <div className="page">
      <PageHead title={STRINGS.pages.models}>{mayDeploy && <LoadModel />}</PageHead>
      {!data && <Waiting error={error} />}
      {data?.length === 0 && <p className="muted">{STRINGS.overview.noModels}</p>}
      {data?.map((model) => (
        <ModelCard key={model.id} model={model} mayDeploy={mayDeploy} />
      ))}
    </div>
  );
}

interface ModelCardOptions {
  readonly model: Model;
  readonly mayDeploy: boolean;
}

function ModelCard({ model, mayDeploy }: ModelCardOptions) {
  const { id, status, replicas, waiting_for, stand_in } = model;
  return (
    <section className="card">
      <div className="page-head">
        <h2>
          {id} <StatusBadge state={status} />
        </h2>
        {mayDeploy && (
          <div className="buttons">
            <ScaleModel model={model} />
            <RemoveModel id={id} />
          </div>
        )}
      </div>
      {stand_in && <p className="muted">{text.standIn(model.backing)}</p>}
      <ModelFacts model={model} />
      {waiting_for.length > 0 && (
        <ul>
          {waiting_for.map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
      )}
      {replicas.length > 0 && <Replicas replicas={replicas} label={text.replicasOf(id)} />}
    </section>
  );
}

function ModelFacts({ model }: { readonly model: Model }) {
  const { wanted_replicas: wanted, scaling } = model;
  const count = scaling
    ? text.between(formatCount(scaling.min), formatCount(scaling.max))
    : String(wanted === "every-worker" ? text.everyWorker : wanted);
  return (
    <Facts
      rows={[
        [text.wanted, scaling?.reason ? `${count} (${scaling.reason})` : count],
        [text.context, formatCount(model.served_context_tokens ?? model.context_window)],
        [text.capabilities, model.capabilities.join(", ")],
        [text.weights, model.weights?.file ?? model.upstream?.model ?? model.backing],
      ]}
    />
  );
}

interface ReplicasOptions {
  readonly replicas: readonly ModelReplica[];
  readonly label: string;
}

function Replicas({ replicas, label }: ReplicasOptions) {
  const { heddle } = useSession();
  const mayRead = useMay("cluster:read");
  const { data: nodes } = useQuery({ ...nodesQuery(heddle), enabled: mayRead });
  const nameOf = (id: string) => nodes?.find((node) => node.id === id)?.name ?? id;
  return (
    <PlainTable
      label={label}
      head={[text.node, text.phase, text.progress, text.engine, text.device, text.calls]}
      rows={replicas.map((replica) => ({
        key: replica.node,
        cells: [
          nameOf(replica.node),
          <StatusBadge key="phase" state={replica.phase} />,
          <ColdStart key="start" replica={replica} />,
          replica.engine ?? "",
          replica.device ?? "",
          text.callCounts(formatCount(replica.running), formatCount(replica.waiting)),
        ],
      }))}
    />
  );
}

/** The download of the weights, or why the replica waits. */
function ColdStart({ replica }: { readonly replica: ModelReplica }) {
  const { phase, pulled_bytes, total_bytes, message } = replica;
  if (phase !== "pulling" || total_bytes === 0) return message;
  const amount = STRINGS.common.of(formatBytes(pulled_bytes), formatBytes(total_bytes));
  return <Meter share={pulled_bytes / total_bytes} text={amount} />;
}

function RemoveModel({ id }: { readonly id: string }) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  return (
    <ConfirmButton
      label={text.remove}
      title={text.removeTitle(id)}
      text={text.removeText}
      confirm={text.removeConfirm}
      isDanger
      act={async () => {
        await heddle.models.remove(id);
        await queries.invalidateQueries({ queryKey: ["models"] });
      }}
    />
  );
}
