import { HeddleError } from "@heddle/client/errors";
import { STRINGS } from "../strings.ts";

/** Why a call failed: the cluster's message, the faults of the request, and the request's id. */
export function ErrorNote({ error }: { readonly error: unknown }) {
  const isKnown = error instanceof HeddleError;
  const faults = isKnown ? error.errors : [];
  return (
    <div className="error-note" role="alert">
      <strong>{STRINGS.common.failed}</strong>
      {faults.length === 0 && <p>{error instanceof Error ? error.message : String(error)}</p>}
      {faults.length > 0 && (
        <ul>
          {faults.map(({ pointer, detail }) => (
            <li key={pointer + detail}>
              <code>{pointer}</code> {detail}
            </li>
          ))}
        </ul>
      )}
      {isKnown && error.request_id !== undefined && (
        <small>{STRINGS.common.requestId(error.request_id)}</small>
      )}
    </div>
  );
}
