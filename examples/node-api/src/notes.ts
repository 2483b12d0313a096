export interface Note {
  readonly id: number;
  readonly text: string;
  readonly created_at: string;
}

/** Notes in memory: they are lost with the container, which is fine for an example. */
export function createNotes(now: () => Date = () => new Date()) {
  const notes: Note[] = [];
  return {
    list: (): readonly Note[] => notes,
    add(text: string): Note {
      const note = { id: notes.length + 1, text, created_at: now().toISOString() };
      notes.push(note);
      return note;
    },
  };
}

export type Notes = ReturnType<typeof createNotes>;
