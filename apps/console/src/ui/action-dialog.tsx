import { type FormEvent, type ReactNode, useRef, useState } from "react";
import { ErrorNote } from "./error-note.tsx";

/** The style of a button; a plain one without. */
type ButtonVariant = "primary" | "danger" | undefined;

interface ActionDialogOptions {
  /** The label of the button that opens it. */
  readonly label: string;
  readonly variant: ButtonVariant;
  readonly title: string;
  readonly children: ReactNode;
  readonly close: string;
  readonly submit: string;
  readonly submitVariant: ButtonVariant;
  /** The dialog closes when it resolves, and shows why it rejects. */
  readonly act: (form: FormData) => Promise<unknown>;
}

/** A button that opens a dialog with a form and its action. */
export function ActionDialog(options: ActionDialogOptions) {
  const { label, variant, title, children, close, submit, submitVariant, act } = options;
  const dialog = useRef<HTMLDialogElement>(null);
  const [isOpen, setOpen] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const open = () => {
    setError(undefined);
    setOpen(true);
    dialog.current?.showModal();
  };
  const run = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setBusy(true);
    setError(undefined);
    try {
      await act(form);
      dialog.current?.close();
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <button type="button" className={variant} onClick={open}>
        {label}
      </button>
      <dialog ref={dialog} aria-label={title} onClose={() => setOpen(false)}>
        {isOpen && (
          <form className="dialog" onSubmit={run}>
            <h2>{title}</h2>
            {children}
            {error !== undefined && <ErrorNote error={error} />}
            <div className="buttons">
              <button type="button" onClick={() => dialog.current?.close()}>
                {close}
              </button>
              <button type="submit" className={submitVariant} disabled={isBusy}>
                {submit}
              </button>
            </div>
          </form>
        )}
      </dialog>
    </>
  );
}
