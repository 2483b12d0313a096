/** The command palette: finds a page, a project, a node or a dataset by a few letters. */
import { useDeferredValue, useId, useMemo, useRef, useState } from 'react';
import { defined } from '@berth/kit/defined';
import { useApiList } from '../api/queries.ts';
import { score } from './score.ts';
import { Dialog } from '../ui/overlay.tsx';
import { TextField } from '../ui/text-field.tsx';

export type Target = { label: string; kind: string; go: () => void };

const SHOWN = 12;
/**
 * Maximum number of projects in a search result. The control plane searches, because there can be
 * thousands of projects.
 */
const FOUND = 50;
const LONGEST_SEARCH = 253;
type PaletteProps = {
  open: boolean;
  onClose: () => void;
  pages: readonly Target[];
  openAt: (path: string) => void;
};
export function Palette({ open, onClose, pages, openAt }: PaletteProps) {
  return (
    <Dialog open={open} onClose={onClose} title="Go to …" size="lg">
      {open && <Search pages={pages} onClose={onClose} openAt={openAt} />}
    </Dialog>
  );
}

function Search({ pages, onClose, openAt }: Omit<PaletteProps, 'open'>) {
  const [typed, setTyped] = useState('');
  const [chosen, setChosen] = useState(0);
  const wanted = useDeferredValue(typed);
  const projects = useApiList(
    'listProjects',
    {
      query: {
        limit: FOUND,
        ...defined({ find: wanted === '' ? undefined : wanted.slice(0, LONGEST_SEARCH) }),
      },
    },
    { keep: true },
  );
  const nodes = useApiList('listNodes', { query: { limit: 200 } });
  const datasets = useApiList('listDatasets', { query: { limit: 200 } });
  const list = useRef<HTMLUListElement>(null);
  const id = useId();
  const matchingTargets = useMemo(() => {
    const all: Target[] = [
      ...pages,
      ...projects.items.map(({ name }) => ({
        label: name,
        kind: 'project',
        go: () => openAt(`/projects/${name}`),
      })),
      ...nodes.items.map(({ id, hostname }) => ({
        label: hostname,
        kind: 'node',
        go: () => openAt(`/nodes/${id}`),
      })),
      ...datasets.items.map(({ name }) => ({
        label: name,
        kind: 'dataset',
        go: () => openAt(`/datasets/${encodeURIComponent(name)}`),
      })),
    ];
    return all
      .map((target) => ({ target, points: score(target.label, wanted) }))
      .filter(({ points }) => points !== null)
      .sort((a, b) => (b.points ?? 0) - (a.points ?? 0))
      .slice(0, SHOWN)
      .map(({ target }) => target);
  }, [wanted, pages, projects.items, nodes.items, datasets.items, openAt]);
  const active = Math.min(chosen, matchingTargets.length - 1);
  const run = (target: Target | undefined): void => {
    if (target === undefined) return;
    onClose();
    target.go();
  };
  return (
    <div
      role="search"
      onKeyDown={(event) => {
        if (event.key === 'ArrowDown')
          setChosen((active + 1) % Math.max(1, matchingTargets.length));
        else if (event.key === 'ArrowUp')
          setChosen((active - 1 + matchingTargets.length) % Math.max(1, matchingTargets.length));
        else if (event.key === 'Enter') run(matchingTargets[active]);
        else return;
        event.preventDefault();
      }}
    >
      <TextField
        label="Name of a page, project, node or dataset"
        value={typed}
        onChange={(text) => {
          setTyped(text);
          setChosen(0);
        }}
        autoFocus
      />
      <p className="visually-hidden" role="status">
        {matchingTargets.length === 0
          ? 'nothing found'
          : `${matchingTargets.length} found; ${matchingTargets[active]?.label ?? ''}`}
      </p>
      <ul
        ref={list}
        id={id}
        style={{ listStyle: 'none', margin: '12px 0 0', padding: 0 }}
        className="nav"
      >
        {matchingTargets.map((target, index) => (
          <li key={`${target.kind} ${target.label}`}>
            <a
              href="#"
              aria-current={index === active ? 'page' : undefined}
              onClick={(event) => {
                event.preventDefault();
                run(target);
              }}
            >
              <span>{target.label}</span>
              <span style={{ marginLeft: 'auto', color: 'var(--quiet)', fontSize: '0.8rem' }}>
                {target.kind}
              </span>
            </a>
          </li>
        ))}
        {matchingTargets.length === 0 && (
          <li style={{ padding: 12, color: 'var(--quiet)' }}>Nothing found</li>
        )}
      </ul>
    </div>
  );
}
