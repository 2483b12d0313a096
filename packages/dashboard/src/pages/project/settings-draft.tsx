/**
 * The draft of the settings. Other people can change the project while a person edits the draft.
 */
import type { Project } from '@berth/wire/project';
import { useState } from 'react';
import { Conflict } from '../../parts/conflict.tsx';
import { labelOf } from '../../parts/field-words.ts';
import { type Draft, draftOf, type FormField, FORM, isEqual } from '../../parts/project-fields.ts';
import { Code } from '../../ui/text.tsx';

/** The version of the project from which the person started. */
type Start = { draft: Draft; etag: string | null; at: string };

const startOf = (project: Project, etag: string | null): Start => ({
  draft: draftOf(project),
  etag,
  at: project.updated_at,
});

const FIELD_NAMES = FORM.map(({ name }) => name);

export type SettingsDraft = {
  draft: Draft;
  setDraft: (draft: Draft) => void;
  start: Start;
  /** Fields that this person changed. */
  changed: readonly FormField[];
  /** Fields that another person changed to a different value. */
  theirs: readonly FormField[];
  /** ETag of the version that the person sees. */
  tag: string | null;
  /** Restarts from the current version of the project with this draft. */
  continueWith: (draft: Draft) => void;
  /** Restarts from the answer to the person's own change. */
  saved: (answer: Project) => void;
};

export function useSettingsDraft(project: Project, etag: string | null): SettingsDraft {
  const [start, setStart] = useState(() => startOf(project, etag));
  const [draft, setDraft] = useState(start.draft);
  // Right after a save, the page still has the project from before the save.
  const isOld = project.updated_at < start.at;
  const theirs = FIELD_NAMES.filter(
    (name) =>
      !isOld && !isEqual(project[name], start.draft[name]) && !isEqual(project[name], draft[name]),
  );
  return {
    draft,
    setDraft,
    start,
    changed: FIELD_NAMES.filter((name) => !isEqual(draft[name], start.draft[name])),
    theirs,
    // If others changed only fields outside the form, the person sees the current version.
    tag: theirs.length === 0 ? etag : (start.etag ?? etag),
    continueWith: (next) => {
      setStart(startOf(project, etag));
      setDraft(next);
    },
    saved: (answer) => setStart(startOf(answer, null)),
  };
}

type SettingsConflictProps = {
  project: Project;
  settings: SettingsDraft;
  onChoice: (draft: Draft) => void;
};
export function SettingsConflict({ project, settings, onChoice }: SettingsConflictProps) {
  const { draft, changed, theirs } = settings;
  if (theirs.length === 0) return null;
  const mine = Object.fromEntries(changed.map((name) => [name, draft[name]]));
  return (
    <Conflict
      title="Somebody else changed this project meanwhile"
      keep="Keep mine on top of theirs"
      onKeep={() => onChoice({ ...draftOf(project), ...mine })}
      onTake={() => onChoice(draftOf(project))}
    >
      <ul>
        {theirs.map((name) => (
          <li key={name}>
            {labelOf(name)}: theirs <Code>{JSON.stringify(project[name])}</Code>, yours{' '}
            <Code>{JSON.stringify(draft[name])}</Code>
          </li>
        ))}
      </ul>
    </Conflict>
  );
}
