/** Log viewer: only the visible lines are in the page, so 100,000 lines open as fast as 100. */
import { useVirtualizer } from '@tanstack/react-virtual';
import { useDeferredValue, useEffect, useMemo, useRef, useState } from 'react';
import { Button, Choice } from '../ui/controls.tsx';
import { Checkbox } from '../ui/fields.tsx';
import { Grow, Row } from '../ui/layout.tsx';
import { TextField } from '../ui/text-field.tsx';
import { Text } from '../ui/text.tsx';
import { piecesOf, plainText } from './ansi.ts';
import { matcherOf } from './match.ts';
import { exactTime } from './time-text.ts';

/** `key` is the number of the line in the address: `seq` of a build log, the time of a runtime log. */
export type Line = { key: string; at: string; stream: 'stdout' | 'stderr' | 'system'; text: string };
type LogViewProps = { lines: readonly Line[]; label: string; follow: boolean; notes?: readonly string[]; file: string };

const ROW_PX = 20;
/** From here to the end counts as the end. */
const NEAR_END_PX = 40;

export function LogView({ lines, label, follow, notes = [], file }: LogViewProps) {
  const [typed, setTyped] = useState('');
  const [stream, setStream] = useState<'all' | 'stderr'>('all');
  const [times, setTimes] = useState(false);
  const [atEnd, setAtEnd] = useState(true);
  const [seen, setSeen] = useState(0);
  const wanted = useDeferredValue(typed);
  const matcher = useMemo(() => matcherOf(wanted), [wanted]);
  const shown = useMemo(
    () =>
      (wanted === '' || typeof matcher === 'string') && stream === 'all'
        ? lines
        : lines.filter(
            (line) => (stream === 'all' || line.stream === stream) && (typeof matcher === 'string' || matcher(plainText(line.text))),
          ),
    [lines, matcher, wanted, stream],
  );
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: shown.length, getScrollElement: () => box.current, estimateSize: () => ROW_PX, overscan: 30 });

  useEffect(() => {
    if (follow && atEnd && shown.length > 0) {
      rows.scrollToIndex(shown.length - 1);
      setSeen(shown.length);
    }
  }, [shown.length, atEnd, follow, rows]);

  const fresh = follow && !atEnd ? Math.max(0, shown.length - seen) : 0;
  const download = (): void => {
    const blob = new Blob([lines.map((line) => `${line.at} ${plainText(line.text)}\n`).join('')], { type: 'text/plain' });
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = file;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <div>
      <div style={{ padding: '0 16px 12px' }}>
        <Row align="end">
          <Grow>
            <TextField
              label="Find in the log"
              help="text, or /regular expression/i"
              type="search"
              value={typed}
              onChange={setTyped}
              error={typeof matcher === 'string' ? matcher : null}
            />
          </Grow>
          <Choice
            label="Stream"
            value={stream}
            onChange={setStream}
            options={[
              { value: 'all', label: 'all' },
              { value: 'stderr', label: 'stderr' },
            ]}
          />
          <Checkbox label="Times" value={times} onChange={setTimes} />
          <Button size="xs" onClick={download}>
            Download
          </Button>
        </Row>
        <Text size="xs" tone="quiet">
          {shown.length === lines.length ? `${lines.length} lines` : `${shown.length} of ${lines.length} lines`}
        </Text>
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
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          const end = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
          if (end !== atEnd) {
            setAtEnd(end);
            setSeen(shown.length);
          }
        }}
      >
        <div style={{ height: rows.getTotalSize(), position: 'relative' }}>
          {rows.getVirtualItems().map((row) => {
            const line = shown[row.index];
            if (line === undefined) return null;
            return (
              <div
                key={row.key}
                data-index={row.index}
                ref={rows.measureElement}
                className={`log-line ${line.stream}`}
                style={{ transform: `translateY(${row.start}px)` }}
              >
                {times && <span className="log-time">{exactTime(line.at).slice(11, 19)} </span>}
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
          })}
        </div>
        {lines.length === 0 && <div className="log-line">No lines yet</div>}
      </div>
      {fresh > 0 && (
        <div style={{ padding: 8 }} role="status">
          <Button size="xs" look="main" onClick={() => setAtEnd(true)}>
            {fresh} new {fresh === 1 ? 'line' : 'lines'}: go to the end
          </Button>
        </div>
      )}
    </div>
  );
}
