"""Guess one number for everything."""

GUESS = 9.5
ids = [line.strip() for line in open("questions.csv")][1:]
with open("submission.csv", "w") as file:
    file.write("id,value\n" + "".join(f"{i},{GUESS}\n" for i in ids))
error = sum(abs(GUESS - int(i)) for i in ids) / len(ids)
print(f"validation mean absolute error: {error}")
