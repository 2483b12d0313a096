/** Two people changed the same thing. */
import { type ReactNode, useRef } from 'react';
import { Button } from '../ui/controls.tsx';
import { Note } from '../ui/feedback.tsx';
import { Row } from '../ui/layout.tsx';

type ConflictProps = {
  title: string;
  /** Both values. */
  children: ReactNode;
  /** The label of the button that keeps the own value. */
  keep: string;
  onKeep: () => void;
  onTake: () => void;
};
/**
 * Shows both values inside a form and lets the person choose. The caller sends nothing until then.
 */
export function Conflict({ title, children, keep, onKeep, onTake }: ConflictProps) {
  const note = useRef<HTMLDivElement>(null);
  /**
   * The note disappears with the pressed button, so the focus goes to the button that sends the
   * form.
   */
  const then = (choose: () => void) => (): void => {
    note.current?.closest('form')?.querySelector<HTMLElement>('button[type="submit"]')?.focus();
    choose();
  };
  return (
    <div ref={note}>
      <Note tone="warn" title={title} live>
        {children}
        <Row>
          <Button size="xs" onClick={then(onKeep)}>
            {keep}
          </Button>
          <Button size="xs" onClick={then(onTake)}>
            Take theirs
          </Button>
        </Row>
      </Note>
    </div>
  );
}
