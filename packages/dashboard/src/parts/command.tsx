/** Shows the command that does the same as the page. */
import { Copy } from '../ui/controls.tsx';
import { Code } from '../ui/text.tsx';

/** Quotes a word if a shell would change it. */
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

/** The text of an empty list: it says what the list shows and how to create the first item. */
export const Empty = ({ children, words }: { children: string; words?: readonly string[] }) => (
  <div className="empty">
    <p style={{ margin: words === undefined ? 0 : '0 0 8px' }}>{children}</p>
    {words !== undefined && <Command words={words} />}
  </div>
);
