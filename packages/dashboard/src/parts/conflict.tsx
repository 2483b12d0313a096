/** A conflict: two people changed the same thing. */
import { type ReactNode, useRef } from 'react';
import { Button } from '../ui/controls.tsx';
import { Note } from '../ui/feedback.tsx';
import { Row } from '../ui/layout.tsx';

type ConflictProps = {
  title: string;
  /** Shows both values. */
  children: ReactNode;
  /** Label of the button that keeps this person's value. */
  keep: string;
  onKeep: () => void;
  onTake: () => void;
};
/** Shows both values inside a form. The caller sends no change before the person chooses. */
export function Conflict({ title, children, keep, onKeep, onTake }: ConflictProps) {
  const note = useRef<HTMLDivElement>(null);
  /** Moves the focus to the submit button, because the pressed button disappears with the note. */
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
