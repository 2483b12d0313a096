/** The command line for what a page shows. */
import { Copy } from '../ui/controls.tsx';
import { Code } from '../ui/text.tsx';

/** Quotes what a shell would change. */
const quote = (word: string): string =>
  /^[\w./:@=+-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
export const commandOf = (...words: readonly string[]): string =>
  ['berth', ...words].map(quote).join(' ');

export const Command = ({ words }: { words: readonly string[] }) => {
  const text = commandOf(...words);
  return (
    <span style={{ display: 'inline-flex', gap: 4, alignItems: 'center', maxWidth: '100%' }}>
      <Code>{text}</Code>
      <span style={{ flex: 'none' }}>
        <Copy text={text} label={`Copy the command ${text}`} />
      </span>
    </span>
  );
};

/** An empty list says what would be here and how to get the first one. */
export const Empty = ({ children, words }: { children: string; words?: readonly string[] }) => (
  <div className="empty">
    <p style={{ margin: words === undefined ? 0 : '0 0 8px' }}>{children}</p>
    {words !== undefined && <Command words={words} />}
  </div>
);
