import type { ReactNode } from "react";
import { STRINGS } from "../strings.ts";
import { ActionDialog } from "./action-dialog.tsx";

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
  return (
    <ActionDialog
      label={label}
      variant={isDanger ? "danger" : undefined}
      title={title}
      close={STRINGS.common.cancel}
      submit={confirm}
      submitVariant={isDanger ? "danger" : "primary"}
      act={act}
    >
      <p>{text}</p>
    </ActionDialog>
  );
}
