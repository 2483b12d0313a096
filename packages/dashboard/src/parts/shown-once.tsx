/** A secret that the server never shows again, for example because it stores only a hash. */
import { Copy } from '../ui/controls.tsx';
import { Note } from '../ui/feedback.tsx';
import { Row } from '../ui/layout.tsx';
import { Code } from '../ui/text.tsx';

type ShownOnceProps = {
  /** The kind of secret, for example `token`. */
  what: string;
  /** Null if there is no secret to show. */
  secret: string | null;
  /** Without this callback, the note cannot be closed. */
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
