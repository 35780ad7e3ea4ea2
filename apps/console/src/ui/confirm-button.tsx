import { type ReactNode, useRef, useState } from "react";
import { STRINGS } from "../strings.ts";
import { ErrorNote } from "./error-note.tsx";

export interface ConfirmButtonOptions {
  readonly label: string;
  readonly title: string;
  readonly text: ReactNode;
  readonly confirm: string;
  readonly isDanger?: boolean;
  /** The dialog closes when it resolves, and shows why it rejects. */
  readonly act: () => Promise<unknown>;
}

/** A button whose action is confirmed in a dialog first. */
export function ConfirmButton(options: ConfirmButtonOptions) {
  const { label, title, text, confirm, isDanger, act } = options;
  const dialog = useRef<HTMLDialogElement>(null);
  const [isOpen, setOpen] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const open = () => {
    setError(undefined);
    setOpen(true);
    dialog.current?.showModal();
  };
  const run = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await act();
      dialog.current?.close();
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <button type="button" className={isDanger ? "danger" : undefined} onClick={open}>
        {label}
      </button>
      <dialog ref={dialog} aria-label={title} onClose={() => setOpen(false)}>
        {isOpen && (
          <div className="dialog">
            <h2>{title}</h2>
            <p>{text}</p>
            {error !== undefined && <ErrorNote error={error} />}
            <div className="buttons">
              <button type="button" onClick={() => dialog.current?.close()}>
                {STRINGS.common.cancel}
              </button>
              <button
                type="button"
                className={isDanger ? "danger" : "primary"}
                disabled={isBusy}
                onClick={run}
              >
                {confirm}
              </button>
            </div>
          </div>
        )}
      </dialog>
    </>
  );
}
