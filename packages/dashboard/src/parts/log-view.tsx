/** The log viewer. Only visible lines are in the DOM, so 100,000 lines open as fast as 100. */
import { useVirtualizer } from '@tanstack/react-virtual';
import {
  type CSSProperties,
  type Ref,
  type UIEvent,
  useDeferredValue,
  useEffect,
  useMemo,
  useRef,
  useState,
} from 'react';
import { Button, Choice, Copy } from '../ui/controls.tsx';
import { Checkbox, Select } from '../ui/fields.tsx';
import { Grow, Row } from '../ui/layout.tsx';
import { TextField } from '../ui/text-field.tsx';
import { Text } from '../ui/text.tsx';
import { piecesOf, plainText } from './ansi.ts';
import { rowsOf } from './log-rows.ts';
import { matcherOf } from './match.ts';
import { countText, exactTime, zoneAt } from './time-text.ts';

/**
 * `key` identifies the line in the page address: `seq` in a build log, the time in a runtime log.
 */
export type Line = {
  key: string;
  at: string;
  stream: 'stdout' | 'stderr' | 'system';
  text: string;
  /** The process and the number of its instance; absent in a build log. */
  from?: string;
};
type LogViewProps = {
  lines: readonly Line[];
  label: string;
  follow: boolean;
  notes?: readonly string[];
  file: string;
  /** True if lines have addresses (`#L12`). Only one log on a page can have them. */
  linkable?: boolean;
};

const ROW_PX = 20;
/** Width of the column of instances: most names have at most this length. */
const FROM_CHARS = 6;
/** Space in px above the first line and below the last. */
const EDGE_PX = 8;
/** A scroll position within this distance of the end counts as the end. */
const NEAR_END_PX = 40;
const CONTEXT = { '0': 'only matches', '3': '± 3 lines', '20': '± 20 lines' } as const;

type Entry = ReturnType<typeof rowsOf<Line>>[number];

const addressOf = (key: string): string => `#L${encodeURIComponent(key)}`;
/** Returns the key of the line that the page address names, or null. */
function linkedLine(): string | null {
  const [, key] = /^#L(.+)$/.exec(location.hash) ?? [];
  try {
    return key === undefined ? null : decodeURIComponent(key);
  } catch {
    return null;
  }
}

export function LogView(props: LogViewProps) {
  const { lines, label, follow, notes = [], file, linkable = false } = props;
  const filter = useFilter();
  const { times, context } = filter;
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [linked, setLinked] = useState(() => (linkable ? linkedLine() : null));
  const [atEnd, setAtEnd] = useState(linked === null);
  const shown = useShownRows(lines, filter, open, linked);
  const hasSeveral = useMemo(() => lines.some(({ from }) => from !== lines[0]?.from), [lines]);
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: shown.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW_PX,
    overscan: 30,
    paddingStart: EDGE_PX,
    paddingEnd: EDGE_PX,
    scrollPaddingEnd: EDGE_PX,
  });
  const end = useEnd({ count: shown.length, follow, atEnd, setAtEnd, rows });
  const place = useMemo(
    () => (linked === null ? -1 : shown.findIndex((row) => row.id === linked)),
    [shown, linked],
  );
  const reached = useScrollToLink(place, rows);

  const link = (key: string): void => {
    reached.current = true;
    setLinked(key);
    setAtEnd(false);
    history.replaceState(history.state, '', addressOf(key));
  };
  const toggle = (id: string): void =>
    setOpen(
      (before) =>
        new Set(before.has(id) ? [...before].filter((one) => one !== id) : [...before, id]),
    );
  const top = shown[rows.range?.startIndex ?? 0];
  return (
    <div>
      <div style={{ display: 'grid', gap: 6, padding: '0 16px 12px' }}>
        <Filters filter={filter} onDownload={() => download(lines, file)} />
        <Summary
          filter={filter}
          shown={shown}
          count={lines.length}
          link={linkable && top?.kind === 'line' ? top.id : null}
        />
        {place < 0 && linked !== null && lines.length > 0 && (
          <Text size="xs" tone="warn">
            The line of the link is not among these lines.
          </Text>
        )}
        {notes.map((note) => (
          <Text key={note} size="xs" tone="warn">
            {note}
          </Text>
        ))}
      </div>
      <div
        ref={box}
        role="log"
        aria-label={label}
        aria-live="off"
        tabIndex={0}
        className="log"
        onScroll={end.onScroll}
      >
        <div style={{ height: rows.getTotalSize(), position: 'relative' }}>
          {rows.getVirtualItems().map((row) => {
            const entry = shown[row.index];
            if (entry === undefined) return null;
            const at = {
              'data-index': row.index,
              ref: rows.measureElement,
              style: { transform: `translateY(${row.start}px)` },
            };
            if (entry.kind !== 'line')
              return <NoteRow key={row.key} at={at} entry={entry} onToggle={toggle} />;
            const isLinked = entry.line.key === linked;
            const isMatch = entry.match && context !== '0';
            return (
              <LineRow
                key={row.key}
                at={at}
                line={entry.line}
                isMatch={isMatch}
                isLinked={isLinked}
                times={times}
                isNamed={hasSeveral}
                onLink={linkable ? link : null}
              />
            );
          })}
        </div>
        {lines.length === 0 && <div className="log-line">No lines yet</div>}
      </div>
      {end.fresh > 0 && (
        <div style={{ padding: 8 }} role="status">
          <Button size="xs" look="main" onClick={() => setAtEnd(true)}>
            {end.fresh} new {end.fresh === 1 ? 'line' : 'lines'}: go to the end
          </Button>
        </div>
      )}
    </div>
  );
}

type Filter = ReturnType<typeof useFilter>;
function useFilter() {
  const [typed, setTyped] = useState('');
  const [stream, setStream] = useState<'all' | 'stdout' | 'stderr'>('all');
  const [times, setTimes] = useState(true);
  const [context, setContext] = useState<keyof typeof CONTEXT>('0');
  const search = useDeferredValue(typed);
  const matcher = useMemo(() => matcherOf(search), [search]);
  const isSearch = (search !== '' && typeof matcher !== 'string') || stream !== 'all';
  return {
    typed,
    setTyped,
    stream,
    setStream,
    times,
    setTimes,
    context,
    setContext,
    /** `matcher` is a text if the search has an error. */
    matcher,
    isSearch,
  };
}

function useShownRows(
  lines: readonly Line[],
  { stream, matcher, isSearch, context }: Filter,
  open: ReadonlySet<string>,
  linked: string | null,
): Entry[] {
  return useMemo(() => {
    const keep = (line: Line): boolean =>
      (stream === 'all' || line.stream === stream) &&
      (typeof matcher === 'string' || matcher(plainText(line.text)));
    return rowsOf(lines, { keep: isSearch ? keep : null, context: Number(context), open, linked });
  }, [lines, matcher, isSearch, stream, context, open, linked]);
}

type Rows = ReturnType<typeof useVirtualizer<HTMLDivElement, Element>>;

/** Keeps the view at the end. `fresh` counts the new rows since the reader left the end. */
function useEnd({
  count,
  follow,
  atEnd,
  setAtEnd,
  rows,
}: {
  count: number;
  follow: boolean;
  atEnd: boolean;
  setAtEnd(atEnd: boolean): void;
  rows: Rows;
}) {
  const [seenCount, setSeenCount] = useState(0);
  useEffect(() => {
    if (follow && atEnd && count > 0) {
      rows.scrollToIndex(count - 1);
      setSeenCount(count);
    }
  }, [count, atEnd, follow, rows]);
  return {
    fresh: follow && !atEnd ? Math.max(0, count - seenCount) : 0,
    onScroll({ currentTarget }: UIEvent<HTMLDivElement>): void {
      const { scrollTop, scrollHeight, clientHeight } = currentTarget;
      const isNearEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
      if (isNearEnd === atEnd) return;
      setAtEnd(isNearEnd);
      setSeenCount(count);
    },
  };
}

/** Scrolls once, when the linked line has arrived. The returned flag prevents the scroll. */
function useScrollToLink(place: number, rows: Rows) {
  const reached = useRef(false);
  useEffect(() => {
    if (place < 0 || reached.current) return;
    reached.current = true;
    rows.scrollToIndex(place, { align: 'center' });
  }, [place, rows]);
  return reached;
}

function download(lines: readonly Line[], file: string): void {
  const hasSeveral = lines.some(({ from }) => from !== lines[0]?.from);
  const texts = lines.map(
    (line) => `${line.at} ${hasSeveral ? `${line.from ?? ''} ` : ''}${plainText(line.text)}\n`,
  );
  const blob = new Blob(texts, { type: 'text/plain' });
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = file;
  link.click();
  URL.revokeObjectURL(link.href);
}

function Filters({ filter, onDownload }: { filter: Filter; onDownload: () => void }) {
  const { typed, setTyped, stream, setStream, times, setTimes, context, setContext } = filter;
  return (
    <Row align="end">
      <Grow>
        <TextField
          label="Find in the log"
          help="text, or /regular expression/i"
          type="search"
          value={typed}
          onChange={setTyped}
          error={typeof filter.matcher === 'string' ? filter.matcher : null}
        />
      </Grow>
      {filter.isSearch && (
        <Select
          label="Around a match"
          value={context}
          onChange={setContext}
          options={Object.entries(CONTEXT).map(([value, text]) => ({
            value: value as keyof typeof CONTEXT,
            label: text,
          }))}
        />
      )}
      <Row>
        <Choice
          label="Stream"
          value={stream}
          onChange={setStream}
          options={[
            { value: 'all', label: 'all' },
            { value: 'stdout', label: 'stdout' },
            { value: 'stderr', label: 'stderr' },
          ]}
        />
        <Checkbox label="Times" value={times} onChange={setTimes} />
        <Button size="xs" onClick={onDownload}>
          Download
        </Button>
      </Row>
    </Row>
  );
}

type SummaryProps = {
  filter: Filter;
  shown: readonly Entry[];
  count: number;
  /** Key of the first visible line; null if lines have no addresses. */
  link: string | null;
};
function Summary({ filter: { isSearch, times }, shown, count, link }: SummaryProps) {
  const matches = useMemo(
    () => (isSearch ? shown.filter((row) => row.kind === 'line' && row.match).length : 0),
    [shown, isSearch],
  );
  return (
    <Text size="xs" tone="quiet">
      {isSearch && `${matches.toLocaleString('en')} of `}
      {countText(count, 'line')}
      {times && `, times in ${zoneAt(new Date())}`}{' '}
      {link !== null && (
        <Copy
          text={new URL(addressOf(link), location.href).href}
          label="Copy link to the first visible line"
        >
          Copy link
        </Copy>
      )}
    </Text>
  );
}

/** Attributes with which the virtualizer positions and measures a row. */
type At = { 'data-index': number; ref: Ref<HTMLDivElement>; style: CSSProperties };

type NoteRowProps = {
  at: At;
  entry: Exclude<Entry, { kind: 'line' }>;
  onToggle(id: string): void;
};
function NoteRow({ at, entry, onToggle }: NoteRowProps) {
  return (
    <div {...at} className="log-line note">
      {entry.kind === 'gap' ? (
        `⋯ ${entry.count} ${entry.count === 1 ? 'line' : 'lines'}`
      ) : (
        <button
          type="button"
          className="log-fold"
          aria-expanded={entry.open}
          onClick={() => onToggle(entry.id)}
        >
          {entry.open ? '▾' : '▸'} {entry.count} more lines of the stack trace
        </button>
      )}
    </div>
  );
}

type LineRowProps = {
  at: At;
  line: Line;
  isMatch: boolean;
  isLinked: boolean;
  times: boolean;
  /** True if the line shows its instance, because the log has lines of several. */
  isNamed: boolean;
  /** Null if the lines have no addresses. */
  onLink: ((key: string) => void) | null;
};
function LineRow({ at, line, isMatch, isLinked, times, isNamed, onLink }: LineRowProps) {
  const marks = [line.stream, ...(isMatch ? ['match'] : []), ...(isLinked ? ['linked'] : [])];
  return (
    <div
      {...at}
      className={`log-line ${marks.join(' ')}`}
      {...(isLinked ? { 'aria-current': true } : {})}
    >
      {onLink !== null && (
        <a
          className="log-link"
          href={addressOf(line.key)}
          tabIndex={-1}
          aria-label="Link to this line"
          onClick={(event) => {
            event.preventDefault();
            onLink(line.key);
          }}
        >
          ¶
        </a>
      )}
      {times && <span className="log-time">{exactTime(line.at).slice(11, 19)} </span>}
      {isNamed && <span className="log-from">{(line.from ?? '').padEnd(FROM_CHARS)} </span>}
      {piecesOf(line.text).map((piece, index) => (
        <span
          key={index}
          {...(piece.color === null ? {} : { className: `sgr-${piece.color}` })}
          style={piece.bold ? { fontWeight: 700 } : {}}
        >
          {piece.text}
        </span>
      ))}
      {line.text === '' && '\u00A0'}
    </div>
  );
}
