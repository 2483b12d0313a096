/**
 * Dialogs. An open dialog keeps the focus inside; a closed one returns it to the previous element.
 */
import { Modal } from '@mantine/core';
import { type ReactNode, useState } from 'react';
import { Button } from './controls.tsx';
import { TextField } from './text-field.tsx';
import { Note } from './feedback.tsx';
import { Column, Row } from './layout.tsx';

type DialogProps = {
  open: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
  size?: 'sm' | 'md' | 'lg' | 'xl';
  closable?: boolean;
};
export const Dialog = ({
  open,
  onClose,
  title,
  children,
  size = 'md',
  closable = true,
}: DialogProps) => (
  <Modal
    opened={open}
    onClose={onClose}
    title={title}
    size={size}
    withCloseButton={closable}
    closeOnEscape={closable}
    closeOnClickOutside={closable}
    closeButtonProps={{ 'aria-label': 'Close' }}
    transitionProps={{ duration: 0 }}
  >
    {children}
  </Modal>
);

type ConfirmProps = {
  open: boolean;
  onClose: () => void;
  title: string;
  /** Full sentences that say what the action does. */
  children: ReactNode;
  action: string;
  danger?: boolean;
  /** Text that the person must type, for changes that cannot be undone. */
  typed?: string;
  busy?: boolean;
  error?: string | null;
  onConfirm: () => void;
};
export const Confirm = ({ open, title, ...form }: ConfirmProps) => (
  <Dialog open={open} onClose={form.onClose} title={title}>
    <ConfirmForm {...form} />
  </Dialog>
);

/** The content of a dialog. Closing unmounts it, so a typed text does not confirm twice. */
function ConfirmForm({
  onClose,
  children,
  action,
  danger = false,
  typed,
  busy = false,
  error = null,
  onConfirm,
}: Omit<ConfirmProps, 'open' | 'title'>) {
  const [text, setText] = useState('');
  const reason = typed !== undefined && text !== typed ? `type ${typed} first` : null;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (reason === null && !busy) onConfirm();
      }}
    >
      <Column>
        <div>{children}</div>
        {typed !== undefined && (
          <TextField label={`Type ${typed} to confirm`} value={text} onChange={setText} autoFocus />
        )}
        {error !== null && (
          <Note tone="bad" live>
            {error}
          </Note>
        )}
        <Row justify="end">
          <Button onClick={onClose}>Keep as it is</Button>
          <Button type="submit" look={danger ? 'danger' : 'main'} reason={reason} busy={busy}>
            {action}
          </Button>
        </Row>
      </Column>
    </form>
  );
}
