/** A secret of which the server keeps only a hash, or that it never shows again. */
import { Copy } from '../ui/controls.tsx';
import { Note } from '../ui/feedback.tsx';
import { Row } from '../ui/layout.tsx';
import { Code } from '../ui/text.tsx';

type ShownOnceProps = {
  /** The kind of secret, for example `token`. */
  what: string;
  /** Null: there is none to show. */
  secret: string | null;
  /** Without it, the note stays. */
  onClose?: () => void;
};
export const ShownOnce = ({ what, secret, ...note }: ShownOnceProps) =>
  secret === null ? null : (
    <Note tone="warn" title={`Copy the ${what} now; it is not shown again`} live {...note}>
      <Row>
        <Code>{secret}</Code>
        <Copy text={secret} label={`Copy the ${what}`} />
      </Row>
    </Note>
  );
