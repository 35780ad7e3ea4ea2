import type { JobArtifact } from "@heddle/contracts/api/job-operations";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { artifactsQuery } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { ErrorNote } from "../ui/error-note.tsx";
import { formatBytes, formatCount } from "../ui/format.ts";
import { PlainTable, Waiting } from "../ui/parts.tsx";

const text = STRINGS.jobs;

/** The artifacts of the latest attempt, which can be downloaded. */
export function JobArtifacts({ id }: { readonly id: string }) {
  const { heddle } = useSession();
  const { data, error } = useQuery(artifactsQuery(heddle, id));
  if (!data) return <Waiting error={error} />;
  if (data.length === 0) return <p className="muted">{text.noArtifacts}</p>;
  return (
    <PlainTable
      label={text.tabs.artifacts}
      head={[STRINGS.common.name, STRINGS.nodes.rank, text.size, "SHA-256", STRINGS.common.actions]}
      rows={data.map((artifact) => ({
        key: `${artifact.rank} ${artifact.name}`,
        cells: [
          artifact.name,
          formatCount(artifact.rank),
          formatBytes(artifact.bytes),
          <code key="sha256">{artifact.sha256.slice(0, 12)}</code>,
          <Download key="download" id={id} artifact={artifact} />,
        ],
      }))}
    />
  );
}

/** Larger ones are for the command line, which writes to a file while it reads. */
const MAX_BYTES = 512 * 1024 * 1024;

function Download({ id, artifact }: { readonly id: string; readonly artifact: JobArtifact }) {
  const { heddle } = useSession();
  const [share, setShare] = useState<number>();
  const [error, setError] = useState<unknown>();
  const { name, rank, bytes } = artifact;
  const download = async () => {
    setError(undefined);
    const parts: BlobPart[] = [];
    let received = 0;
    try {
      for await (const part of heddle.jobs.artifact(id, name, { rank })) {
        parts.push(part as Uint8Array<ArrayBuffer>);
        received += part.byteLength;
        setShare(received / Math.max(1, bytes));
      }
      save(new Blob(parts), name.split("/").at(-1) ?? name);
    } catch (thrown) {
      setError(thrown);
    } finally {
      setShare(undefined);
    }
  };
  if (bytes > MAX_BYTES) return <code>{text.downloadCommand(id, name)}</code>;
  return (
    <>
      <button type="button" disabled={share !== undefined} onClick={download}>
        {share === undefined ? text.download : `${Math.round(share * 100)}%`}
      </button>
      {error !== undefined && <ErrorNote error={error} />}
    </>
  );
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
